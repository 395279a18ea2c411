//! How long the text of a number is.

use pgrx::pg_sys;

/// Decimal digits in each of a number's own.
const DIGITS: u64 = 4;

/// The length of a number's text, which is not written for it: most of it can be zeros that are
/// not stored. The number is finite, as those in JSON are.
pub fn length(number: pg_sys::Numeric) -> u64 {
    const SHORT: u16 = 0x8000;
    // SAFETY: a number carries its own length. Its first two bytes say of what form it is, and
    // each form is followed by digits of two bytes.
    let words = unsafe {
        let bytes = pgrx::varsize_any_exhdr(number.cast());
        let data: *const [u8; 2] = pgrx::vardata_any(number.cast()).cast();
        std::slice::from_raw_parts(data, bytes / 2)
    };
    let word = |n: usize| words.get(n).map(|bytes| u16::from_ne_bytes(*bytes));
    let header = word(0).unwrap_or(SHORT);
    let (is_negative, scale, weight, digits) = if header & SHORT != 0 {
        // Six bits and a sign.
        let weight = (header & 0x3f) as i16 - (header & 0x40) as i16;
        let scale = (header & 0x1f80) >> 7;
        (header & 0x2000 != 0, scale, weight, 1)
    } else {
        let weight = word(1).unwrap_or(0) as i16;
        (header & 0x4000 != 0, header & 0x3fff, weight, 2)
    };
    let before_point = match (word(digits), u64::try_from(weight)) {
        (Some(first), Ok(rest)) => u64::from(first.max(1).ilog10()) + 1 + rest * DIGITS,
        // Nothing but a zero stands there.
        _ => 1,
    };
    let behind_point = match scale {
        0 => 0,
        scale => 1 + u64::from(scale),
    };
    u64::from(is_negative) + before_point + behind_point
}
