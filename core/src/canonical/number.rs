//! Numbers in canonical JSON: one text for one decimal value, however it was spelled.

use super::Flaw;

/// Postgres' `numeric` has at most this many digits before the decimal point.
pub(super) const MOST_BEFORE_POINT: i64 = 131_072;
/// Postgres' `numeric` has at most this many digits after the decimal point.
pub(super) const MOST_AFTER_POINT: i64 = 16_383;
/// No `jsonb` holds more bytes. Canonical text becomes longer where short spellings of long numbers
/// are written out (`1e131071`), and must not become so long that memory runs out.
pub(super) const LONGEST_TEXT: usize = 256 << 20;
/// Integers of so many digits are below 2^53: each is a double, and ES6 writes it as it is.
const EXACT_DIGITS: usize = 15;

/// Appends a number's canonical text: as ECMAScript prints the nearest double (RFC 8785, section
/// 3.2.2.3) where that text denotes the same decimal value, otherwise its own digits, so that
/// numbers that differ never become the same.
///
/// `text` is a JSON number or what Postgres prints for a `numeric`.
pub(super) fn push(out: &mut String, text: &str) -> Result<(), Flaw> {
    if is_short_integer(text) {
        out.push_str(text);
        return Ok(());
    }
    let number = Decimal::parse(text).ok_or(Flaw::Malformed)?;
    if number.point > MOST_BEFORE_POINT || number.digits_after_point() > MOST_AFTER_POINT {
        return Err(Flaw::OutOfRange);
    }
    // What is too large for a double parses as infinity, which has no ES6 text that could be the
    // same number.
    let double: f64 = text.parse().map_err(|_| Flaw::Malformed)?;
    if double.is_finite() {
        let mut buffer = ryu_js::Buffer::new();
        let es6 = buffer.format_finite(double);
        if es6 == text || Decimal::parse(es6).as_ref() == Some(&number) {
            out.push_str(es6);
            return Ok(());
        }
    }
    if out.len() > LONGEST_TEXT {
        return Err(Flaw::TooLong);
    }
    number.push_plain(out);
    Ok(())
}

/// Whether the text is its own canonical form for certain: nearly every number in practice.
fn is_short_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    match digits {
        [b'0'] => text == "0",
        [b'1'..=b'9', rest @ ..] => {
            digits.len() <= EXACT_DIGITS && rest.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

/// A decimal number, exactly: 0.`digits` × 10^`point`. Equal numbers have equal fields.
#[derive(Debug, PartialEq)]
struct Decimal {
    negative: bool,
    /// The significant digits in ASCII: the first and the last are not zero. Zero has none, and
    /// `point` 0.
    digits: Vec<u8>,
    /// How many digits stand before the decimal point; negative: how many zeros follow it before
    /// the first digit.
    point: i64,
}

impl Decimal {
    /// Reads `-12.50`, `.5`, `1e21`, `4.2E+1`; nothing if it is not a number.
    fn parse(text: &str) -> Option<Decimal> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.drain(..zeros);
        if digits.is_empty() {
            return Some(Decimal { negative: false, digits, point: 0 });
        }
        // Lengths of strings fit an i64, and saturation keeps an absurd exponent out of range.
        let point = exponent.saturating_add(whole.len() as i64).saturating_sub(zeros as i64);
        Some(Decimal { negative, digits, point })
    }

    fn digits_after_point(&self) -> i64 {
        (self.digits.len() as i64).saturating_sub(self.point)
    }

    /// Appends the number without exponent, without zeros that say nothing and without "-0".
    fn push_plain(&self, out: &mut String) {
        if self.digits.is_empty() {
            out.push('0');
            return;
        }
        if self.negative {
            out.push('-');
        }
        let digit = |i: i64| {
            usize::try_from(i).ok().and_then(|i| self.digits.get(i)).copied().unwrap_or(b'0')
        };
        let before = (0..self.point).map(digit);
        let after = (self.point..self.digits.len() as i64).map(digit);
        if self.point <= 0 {
            out.push('0');
        }
        out.extend(before.map(char::from));
        if self.digits_after_point() > 0 {
            out.push('.');
        }
        out.extend(after.map(char::from));
    }
}

/// An exponent; one of any length is read, saturated where it is far beyond every limit anyway.
fn parse_exponent(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] | digits => (1, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits
        .iter()
        .fold(0_i64, |size, digit| size.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    Some(sign * size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        let mut out = String::new();
        push(&mut out, text).expect(text);
        out
    }

    /// The values of RFC 8785, appendix B, that are exact in the ES6 form, and ECMAScript's limits
    /// between its forms.
    #[test]
    fn es6_form_where_it_is_the_same_number() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("0e5", "0"),
            ("0.000", "0"),
            ("0e99999999999999999999", "0"),
            ("42", "42"),
            ("-42", "-42"),
            ("42.0", "42"),
            ("4.2e1", "42"),
            ("420E-1", "42"),
            ("42.10", "42.1"),
            ("0.1", "0.1"),
            ("-0.000001", "-0.000001"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1e-7", "1e-7"),
            ("0.00000012", "1.2e-7"),
            ("1e20", "100000000000000000000"),
            ("100000000000000000000", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("1000000000000000000000", "1e+21"),
            ("10000000000000000000000", "1e+22"),
            ("9007199254740991", "9007199254740991"),
            ("9007199254740992", "9007199254740992"),
            ("-9007199254740992", "-9007199254740992"),
            ("9007199254740994", "9007199254740994"),
            ("999999999999999", "999999999999999"),
            ("295147905179352830000", "295147905179352830000"),
            ("1e23", "1e+23"),
            ("9.999999999999997e22", "9.999999999999997e+22"),
            ("999999999999999700000", "999999999999999700000"),
            ("333333333.3333333", "333333333.3333333"),
            ("5e-324", "5e-324"),
            ("-5e-324", "-5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("-1.7976931348623157e+308", "-1.7976931348623157e+308"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn own_digits_where_a_double_is_another_number() {
        let tiny = format!("0.{}3", "0".repeat(323));
        let huge = format!("1{}", "0".repeat(400));
        let large = format!("17976931348623158{}", "0".repeat(292));
        for (text, expected) in [
            ("9007199254740993", "9007199254740993"),
            ("9007199254740993.000", "9007199254740993"),
            ("9.007199254740993e15", "9007199254740993"),
            ("-9007199254740993", "-9007199254740993"),
            ("333333333.33333329", "333333333.33333329"),
            ("333333333.333333290e0", "333333333.33333329"),
            // What the double nearest to 2.9514790517935283e20 is exactly: not the number that ES6
            // prints for it.
            ("295147905179352825856", "295147905179352825856"),
            ("0.10000000000000000001", "0.10000000000000000001"),
            ("123456789012345678901234567890e-20", "1234567890.1234567890123456789"),
            ("12345678901234567890123e3", "12345678901234567890123000"),
            ("3e-324", &tiny),
            ("1e400", &huge),
            ("10e399", &huge),
            ("1.7976931348623158e308", &large),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
        assert_eq!(canonical("-1e400"), format!("-{huge}"));
        assert_eq!(canonical("1e-400"), format!("0.{}1", "0".repeat(399)));
    }

    #[test]
    fn limits_are_those_of_numeric() {
        assert_eq!(canonical("1e131071").len(), 131_072);
        assert_eq!(canonical("1e-16383").len(), 2 + 16_383);
        for text in [
            "1e131072",
            "1e-16384",
            "1.5e-16383",
            "1e999999999",
            "-1e-999999999",
            "1e99999999999999999999",
        ] {
            assert_eq!(push(&mut String::new(), text), Err(Flaw::OutOfRange), "{text}");
        }
        // Zeros at the end say nothing and need no place.
        assert_eq!(canonical(&format!("1.{}", "0".repeat(20_000))), "1");
    }

    #[test]
    fn numbers_are_not_written_out_without_end() {
        let mut out = "0".repeat(LONGEST_TEXT + 1);
        assert_eq!(push(&mut out, "1e400"), Err(Flaw::TooLong));
        // What is not longer than it was is not what the limit is for.
        assert_eq!(push(&mut out, "1e21"), Ok(()));
    }

    #[test]
    fn what_is_not_a_number_is_refused() {
        for text in [
            "", "-", "+1", ".", "NaN", "Infinity", "-inf", "1e", "1e+", "1e1.5", "1.2.3", "0x10",
            " 1", "1_0", "--1", "١",
        ] {
            assert_eq!(push(&mut String::new(), text), Err(Flaw::Malformed), "{text}");
        }
    }
}
