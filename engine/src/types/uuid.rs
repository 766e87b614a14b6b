//! UUIDs: 16 bytes in an Arrow array (`FixedSizeBinary(16)`, which holds nothing else here), and
//! their text.

use arrow::datatypes::DataType;

/// Length in bytes.
pub const LEN: i32 = 16;

/// The Arrow type.
pub const TYPE: DataType = DataType::FixedSizeBinary(LEN);

/// Digits of a byte.
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Reads a UUID as PostgreSQL does: 32 hexadecimal digits of either case, maybe with a hyphen
/// after any group of four, maybe in braces.
pub fn parse(text: &str) -> Option<[u8; 16]> {
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let mut rest = inner.as_bytes();
    let mut out = [0u8; 16];
    for (i, byte) in out.iter_mut().enumerate() {
        if i > 0 && i % 2 == 0 && rest.first() == Some(&b'-') {
            rest = rest.get(1..)?;
        }
        let [high, low, tail @ ..] = rest else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
        rest = tail;
    }
    rest.is_empty().then_some(out)
}

fn digit(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

/// Appends the canonical text: lower case, hyphens after 8, 12, 16 and 20 digits.
pub fn write(bytes: &[u8], out: &mut String) {
    for (i, b) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        for half in [b >> 4, b & 15] {
            out.push(char::from(HEX[usize::from(half)]));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn forms_of_one_uuid() {
        let plain = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        let wanted = parse(plain).unwrap();
        for form in [
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
        ] {
            assert_eq!(parse(form), Some(wanted), "{form}");
        }
        let mut text = String::new();
        write(&wanted, &mut text);
        assert_eq!(text, plain);
    }

    #[test]
    fn what_is_no_uuid() {
        for bad in [
            "",
            "{}",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc999-c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
            "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "日本語日本語日本語日本語日本",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
