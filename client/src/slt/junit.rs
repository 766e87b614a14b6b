//! Test results as JUnit XML, for CI systems.

use super::Summary;

/// The report: one suite, one case per file.
pub fn junit(summary: &Summary) -> String {
    let failures = summary.files.iter().filter(|file| file.failure.is_some()).count();
    let seconds: f64 = summary.files.iter().map(|file| file.elapsed.as_secs_f64()).sum();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    xml.push_str(&format!(
        "<testsuite name=\"spate slt\" tests=\"{}\" failures=\"{failures}\" time=\"{seconds:.3}\">\n",
        summary.files.len()
    ));
    for file in &summary.files {
        xml.push_str(&format!(
            "  <testcase classname=\"slt\" name=\"{}\" time=\"{:.3}\"",
            escape(&file.path.display().to_string()),
            file.elapsed.as_secs_f64()
        ));
        match &file.failure {
            None => xml.push_str("/>\n"),
            Some(failure) => {
                let first = failure.lines().next().unwrap_or("");
                xml.push_str(&format!(
                    ">\n    <failure message=\"{}\">{}</failure>\n  </testcase>\n",
                    escape(first),
                    escape(failure)
                ));
            }
        }
    }
    xml.push_str("</testsuite>\n");
    xml
}

/// XML text; characters that XML 1.0 cannot hold become U+FFFD.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
