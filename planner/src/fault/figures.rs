//! Drawings as SVG: the distribution of outages, cost against budget, a plan on its dataflow graph.
//!
//! Plain strings, no fonts or scripts from elsewhere; readable on light and dark backgrounds alike.

use std::fmt::Write as _;

use super::model::Model;
use super::shock::Plan;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 52.0;
const COLOURS: [&str; 6] = ["#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#718096"];

/// A line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Points, by x.
    pub points: Vec<(f64, f64)>,
}

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from 0.
    Linear,
    /// By powers of ten; values of 0 and below are left out.
    Log,
}

struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values.filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0)) {
            low = low.min(v);
            high = high.max(v);
        }
        if low > high {
            (low, high) = (0.1, 1.0);
        }
        match scale {
            Scale::Linear => (low, high) = (low.min(0.0), if high > 0.0 { high * 1.04 } else { 1.0 }),
            // Whole decades are far apart; a little room is enough.
            Scale::Log => (low, high) = (low / 1.2, (high * 1.2).max(low * 1.3)),
        }
        Self { scale, low, high, from, to }
    }

    fn at(&self, v: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (v - self.low) / (self.high - self.low),
            Scale::Log if v <= 0.0 => return None,
            Scale::Log => (v / self.low).ln() / (self.high / self.low).ln(),
        };
        share.is_finite().then(|| self.from + share.clamp(0.0, 1.0) * (self.to - self.from))
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => {
                let rough = (self.high - self.low) / 6.0;
                let decade = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * decade).find(|s| *s >= rough).unwrap_or(rough);
                let first = (self.low / step).ceil();
                (0..20u8).map(|i| (first + f64::from(i)) * step).take_while(|t| *t <= self.high).collect()
            }
            Scale::Log => {
                let (a, b) = (self.low.log10().floor(), self.high.log10().ceil());
                let decades = (b - a).clamp(0.0, 40.0);
                let marks: &[f64] = if decades <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                (0..=40u8)
                    .take_while(|i| f64::from(*i) <= decades)
                    .flat_map(|i| marks.iter().map(move |m| m * 10f64.powf(a + f64::from(i))))
                    .filter(|t| (self.low..=self.high).contains(t))
                    .collect()
            }
        }
    }
}

fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn number(x: f64) -> String {
    if x == 0.0 {
        "0".to_owned()
    } else if !(1e-3..1e6).contains(&x.abs()) {
        format!("{x:.0e}")
    } else {
        // Ticks have few digits: 0.30000000000000004 is 0.3.
        let s = format!("{x:.4}");
        s.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

fn open(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"#4a5568\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\" fill=\"#1a202c\">{}</text>\n",
        escape(title)
    )
}

/// A chart of lines with axes, ticks and names.
pub fn chart(title: &str, x_name: &str, y_name: &str, scales: (Scale, Scale), series: &[Series]) -> String {
    let all = || series.iter().flat_map(|s| s.points.iter());
    let x = Axis::new(scales.0, all().map(|p| p.0), LEFT, WIDTH - RIGHT);
    let y = Axis::new(scales.1, all().map(|p| p.1), HEIGHT - BOTTOM, TOP);
    let mut o = open(WIDTH, HEIGHT, title);
    // Writing to a string cannot fail.
    for t in x.ticks() {
        if let Some(p) = x.at(t) {
            let (a, b) = (TOP, HEIGHT - BOTTOM);
            let _ = writeln!(o, "<path d=\"M{p:.1} {a}V{b}\" stroke=\"#e2e8f0\"/>");
            let _ = writeln!(o, "<text x=\"{p:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", b + 16.0, number(t));
        }
    }
    for t in y.ticks() {
        if let Some(p) = y.at(t) {
            let _ = writeln!(o, "<path d=\"M{LEFT} {p:.1}H{}\" stroke=\"#e2e8f0\"/>", WIDTH - RIGHT);
            let _ =
                writeln!(o, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 6.0, p + 4.0, number(t));
        }
    }
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    let _ =
        writeln!(o, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>", HEIGHT - 12.0, escape(x_name));
    let half = f64::midpoint(TOP, HEIGHT - BOTTOM);
    let _ = writeln!(
        o,
        "<text x=\"16\" y=\"{half}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {half})\">{}</text>",
        escape(y_name)
    );
    for (i, s) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let points: Vec<String> =
            s.points.iter().filter_map(|p| Some(format!("{:.1},{:.1}", x.at(p.0)?, y.at(p.1)?))).collect();
        let dash = if i % 2 == 1 { " stroke-dasharray=\"6 3\"" } else { "" };
        let _ = writeln!(
            o,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            points.join(" ")
        );
        let (lx, ly) = (WIDTH - RIGHT - 190.0, TOP + 16.0 + 17.0 * i as f64);
        let _ = writeln!(o, "<path d=\"M{lx} {}h22\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>", ly - 4.0);
        let _ = writeln!(o, "<text x=\"{}\" y=\"{ly}\">{}</text>", lx + 28.0, escape(&s.name));
    }
    o.push_str("</svg>\n");
    o
}

/// Share of outages longer than x, of sorted lengths; at most 200 points.
pub fn exceedance(name: &str, sorted_s: &[f64]) -> Series {
    let n = sorted_s.len();
    let step = n.div_ceil(200).max(1);
    let points = (0..n).step_by(step).map(|i| (sorted_s[i], (n - i) as f64 / n as f64)).collect();
    Series { name: name.to_owned(), points }
}

/// At most so many tasks are drawn.
pub const MOST_TASKS: usize = 400;

/// The plan on its dataflow graph: producers left, consumers right; one frame colour per worker, filled
/// where there is a replica; the interval of snapshots below the name.
pub fn plan(model: &Model, plan: &Plan, title: &str) -> String {
    let input = model.input;
    let drawn = input.tasks.len().min(MOST_TASKS);
    // Layers by the longest way from a source.
    let mut layer = vec![0usize; input.tasks.len()];
    let out = input.successors();
    for &v in &model.order {
        for &w in &out[v] {
            layer[w] = layer[w].max(layer[v] + 1);
        }
    }
    let layers = layer.iter().take(drawn).max().map_or(1, |l| l + 1);
    let mut in_layer = vec![0usize; layers];
    let place: Vec<usize> = (0..drawn)
        .map(|v| {
            in_layer[layer[v]] += 1;
            in_layer[layer[v]] - 1
        })
        .collect();
    let tallest = in_layer.iter().max().copied().unwrap_or(1);
    let (w, h, gap_x, gap_y) = (150.0, 46.0, 60.0, 14.0);
    let width = 2.0 * 20.0 + layers as f64 * (w + gap_x) - gap_x;
    let height = TOP + tallest as f64 * (h + gap_y) + 20.0;
    let at = |v: usize| {
        let free = (tallest - in_layer[layer[v]]) as f64 * (h + gap_y) / 2.0;
        (20.0 + layer[v] as f64 * (w + gap_x), TOP + free + place[v] as f64 * (h + gap_y))
    };
    let mut o = open(width.max(300.0), height, title);
    for e in input.edges.iter().filter(|e| e.from < drawn && e.to < drawn) {
        let ((x1, y1), (x2, y2)) = (at(e.from), at(e.to));
        let dash = if e.logged { " stroke-dasharray=\"4 3\"" } else { "" };
        let _ = writeln!(
            o,
            "<path d=\"M{:.1} {:.1}L{x2:.1} {:.1}\" stroke=\"#a0aec0\"{dash}/>",
            x1 + w,
            y1 + h / 2.0,
            y2 + h / 2.0
        );
    }
    for v in 0..drawn {
        let (x, y) = at(v);
        let worker = plan.placement.primary[v];
        let colour = COLOURS[worker % COLOURS.len()];
        let fill = if plan.choices[v].active { "#fefcbf" } else { "#f7fafc" };
        let snapshots = if input.tasks[v].stateful() {
            format!("every {} s", number(input.cluster.interval_s(plan.choices[v].level)))
        } else {
            "no state".to_owned()
        };
        let where_to = match plan.placement.replica[v] {
            Some(r) => format!("{} + {}", input.cluster.workers[worker].name, input.cluster.workers[r].name),
            None => input.cluster.workers[worker].name.clone(),
        };
        let _ = writeln!(
            o,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w}\" height=\"{h}\" rx=\"5\" fill=\"{fill}\" stroke=\"{colour}\" \
             stroke-width=\"2\"/>\n<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#1a202c\">{}</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{}, {}</text>",
            x + 8.0,
            y + 18.0,
            escape(&input.tasks[v].name),
            x + 8.0,
            y + 36.0,
            escape(&where_to),
            snapshots
        );
    }
    if drawn < input.tasks.len() {
        let _ =
            writeln!(o, "<text x=\"20\" y=\"{}\">and {} more tasks</text>", height - 6.0, input.tasks.len() - drawn);
    }
    o.push_str("</svg>\n");
    o
}

#[cfg(test)]
#[path = "figures_tests.rs"]
mod tests;
