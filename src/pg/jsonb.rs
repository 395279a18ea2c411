//! jsonb arguments, walked in place instead of being turned into text and parsed.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char};

use jobs_core::canonical::{Event, Events};
use pgrx::pg_sys::{self, Datum, jbvType};
use serde_json::Value;
use smallvec::SmallVec;

use super::memory::Scratch;
use super::numeric;
use crate::error::{self, Error};
use crate::settings;

/// The deepest options: more than any of them needs, and far from what a stack holds.
const DEEPEST: u32 = 32;

/// A jsonb value where it lies: an argument, detoasted, or a part of one. Lives as long as the
/// memory of the call.
#[derive(Clone, Copy, Debug)]
pub struct Jsonb(Location);

#[derive(Clone, Copy, Debug)]
enum Location {
    /// A value of its own.
    Whole(*mut pg_sys::Jsonb),
    /// An object or array in another value, and its length in bytes.
    Nested(*mut pg_sys::JsonbContainer, u32),
    /// A string in another value, and its length in bytes.
    String(*mut c_char, u32),
    Number(pg_sys::Numeric),
    Bool(bool),
    Null,
}

/// The value `{}`.
static EMPTY: Empty = Empty {
    // As Postgres has a length of 8 bytes.
    length: if cfg!(target_endian = "big") { 8 } else { 8 << 2 },
    header: pg_sys::JB_FOBJECT,
};

#[repr(C)]
struct Empty {
    length: u32,
    header: u32,
}

/// Lets a type that wraps a detoasted varlena be an argument of a `#[pg_extern]`.
macro_rules! varlena_argument {
    ($type:ident, $sql:literal, $wrap:expr) => {
        // SAFETY: the function's declaration in sql/ gives this argument a varlena type.
        unsafe impl<'fcx> pgrx::callconv::ArgAbi<'fcx> for $type {
            unsafe fn unbox_arg_unchecked(arg: pgrx::callconv::Arg<'_, 'fcx>) -> Self {
                // SAFETY: the argument has the type that the function declares.
                unsafe {
                    arg.unbox_arg_using_from_datum::<$type>().expect("not null: checked by Option")
                }
            }
        }
        impl pgrx::FromDatum for $type {
            unsafe fn from_polymorphic_datum(
                datum: pgrx::pg_sys::Datum,
                is_null: bool,
                _: pgrx::pg_sys::Oid,
            ) -> Option<Self> {
                // SAFETY: a varlena of that type.
                #[allow(clippy::redundant_closure_call)]
                (!is_null).then(|| unsafe {
                    ($wrap)(pgrx::pg_sys::pg_detoast_datum(datum.cast_mut_ptr()))
                })
            }
        }
        // Declared by hand in sql/: pgrx asks for a name all the same.
        pgrx::pgrx_sql_entity_graph::impl_sql_translatable!($type, $sql);
    };
}
pub(crate) use varlena_argument;

varlena_argument!(Jsonb, "jsonb", |p: *mut pg_sys::varlena| Jsonb(Location::Whole(p.cast())));

/// A jsonb that outlives the call that it came in.
#[derive(Clone, PartialEq)]
pub struct OwnedJsonb(Box<[u64]>);

impl OwnedJsonb {
    pub fn new(value: Jsonb) -> OwnedJsonb {
        let value: *const pg_sys::varlena = value.datum().cast_mut_ptr();
        // SAFETY: a detoasted varlena carries its own length; there is room for it.
        unsafe {
            let length = pgrx::varsize_4b(value);
            let mut words = vec![0u64; length.div_ceil(8)];
            std::ptr::copy_nonoverlapping(value.cast::<u8>(), words.as_mut_ptr().cast(), length);
            OwnedJsonb(words.into_boxed_slice())
        }
    }

    /// The value, as long as this lives.
    pub fn get(&self) -> Jsonb {
        Jsonb(Location::Whole(self.0.as_ptr().cast_mut().cast()))
    }
}

impl Jsonb {
    pub const NULL: Jsonb = Jsonb(Location::Null);

    /// From a jsonb datum, for example an element of an array.
    pub fn from_datum(datum: Datum) -> Jsonb {
        // SAFETY: the caller took it from a jsonb; detoasting copies only if needed.
        let value = unsafe { pg_sys::pg_detoast_datum(datum.cast_mut_ptr()) };
        Jsonb(Location::Whole(value.cast()))
    }

    pub fn empty_object() -> Jsonb {
        Jsonb(Location::Whole((&raw const EMPTY).cast_mut().cast()))
    }

    /// The value of a text that is valid JSON.
    pub fn from_text(text: &str) -> Jsonb {
        let text = CString::new(text).expect("JSON has no zero byte");
        // SAFETY: the input function of jsonb.
        Jsonb::from_datum(unsafe {
            pg_sys::OidInputFunctionCall(
                pg_sys::Oid::from(pg_sys::F_JSONB_IN),
                text.as_ptr().cast_mut(),
                pg_sys::JSONBOID,
                -1,
            )
        })
    }

    /// The datum, of a part a copy.
    pub fn datum(self) -> Datum {
        use pg_sys::JsonbValue__bindgen_ty_1 as Content;
        use pg_sys::JsonbValue__bindgen_ty_1__bindgen_ty_1 as Text;
        use pg_sys::JsonbValue__bindgen_ty_1__bindgen_ty_4 as Binary;
        let (type_, val) = match self.0 {
            Location::Whole(value) => return Datum::from(value),
            Location::Nested(data, len) => {
                let len = len as i32;
                let binary = Binary { len, data };
                (jbvType::jbvBinary, Content { binary })
            }
            Location::String(val, len) => {
                let len = len as i32;
                let string = Text { len, val };
                (jbvType::jbvString, Content { string })
            }
            Location::Number(numeric) => (jbvType::jbvNumeric, Content { numeric }),
            Location::Bool(boolean) => (jbvType::jbvBool, Content { boolean }),
            Location::Null => (jbvType::jbvNull, Content { boolean: false }),
        };
        let mut value = pg_sys::JsonbValue { type_, val };
        // SAFETY: a value of that type, which is copied.
        Datum::from(unsafe { pg_sys::JsonbValueToJsonb(&mut value) })
    }

    /// What tells this value from others, as long as it lives: where it is the same, so are the
    /// values.
    pub fn identity(self) -> (u8, &'static [u8]) {
        // SAFETY: everything carries its own length.
        unsafe {
            let bytes = |data, length| std::slice::from_raw_parts(data, length);
            match self.0 {
                Location::Null => (0, &[]),
                Location::Bool(value) => (1 + u8::from(value), &[]),
                Location::Number(number) => {
                    (3, bytes(number.cast(), pgrx::varsize_any(number.cast())))
                }
                Location::String(text, length) => (4, bytes(text.cast(), length as usize)),
                Location::Nested(data, length) => (5, bytes(data.cast(), length as usize)),
                Location::Whole(value) => {
                    let length = pgrx::varsize_4b(value.cast()) - size_of::<u32>();
                    (5, bytes((&raw const (*value).root).cast(), length))
                }
            }
        }
    }

    pub fn events(self) -> JsonbEvents {
        JsonbEvents { open: SmallVec::new(), value: Some(self) }
    }

    /// Where the value is an object or array, or a scalar of its own, which is kept as an array of
    /// one.
    fn container(self) -> Option<*mut pg_sys::JsonbContainer> {
        match self.0 {
            // SAFETY: a detoasted jsonb.
            Location::Whole(value) => Some(unsafe { &raw mut (*value).root }),
            Location::Nested(container, _) => Some(container),
            _ => None,
        }
    }

    /// What its container says of itself.
    fn header(self) -> u32 {
        // SAFETY: it begins with that.
        self.container().map_or(0, |container| unsafe { (*container).header })
    }

    /// The whole value of this parameter, for small documents such as options.
    pub fn to_value(self, parameter: &str) -> error::Result<Value> {
        let most = settings::max_payload();
        if let Some(length) = length_above(most, &[Some(self)]) {
            return Err(Error::too_long(parameter, length, most));
        }
        self.tree(DEEPEST).ok_or_else(|| {
            Error::invalid(
                parameter,
                format!("{parameter} is nested too deeply"),
                format!("{parameter} must be at most {DEEPEST} levels deep."),
            )
        })
    }

    /// `None` if it is deeper than that.
    fn tree(self, depth: u32) -> Option<Value> {
        let below = depth.checked_sub(1)?;
        if let Some((_, elements)) = self.elements() {
            let elements = elements.map(|element| element.tree(below));
            return elements.collect::<Option<_>>().map(Value::Array);
        }
        if let Some(members) = self.members() {
            let members = members.map(|(name, value)| Some((name.to_owned(), value.tree(below)?)));
            return members.collect::<Option<_>>().map(Value::Object);
        }
        Some(match self.events().next() {
            Event::Bool(value) => Value::Bool(value),
            Event::Number(digits) => {
                Value::Number(digits.parse().expect("numeric prints JSON numbers"))
            }
            Event::String(text) => Value::String(text.into_owned()),
            _ => Value::Null,
        })
    }

    /// The elements of an array, and how many; `None` if the value is not an array.
    pub fn elements(self) -> Option<(usize, impl Iterator<Item = Jsonb>)> {
        let header = self.header();
        let is_array = header & (pg_sys::JB_FARRAY | pg_sys::JB_FSCALAR) == pg_sys::JB_FARRAY;
        let count = (header & pg_sys::JB_CMASK) as usize;
        is_array.then(|| (count, self.children().map(|(_, value)| value)))
    }

    /// How many bytes it is stored in.
    fn bytes(self) -> usize {
        match self.0 {
            // SAFETY: a detoasted varlena carries its own length, as a number does.
            Location::Whole(value) => unsafe { pgrx::varsize_4b(value.cast()) },
            // SAFETY: see above.
            Location::Number(number) => unsafe { pgrx::varsize_any(number.cast()) },
            Location::Nested(_, length) | Location::String(_, length) => length as usize,
            // As far as the bound goes: "false".
            Location::Bool(_) | Location::Null => 1,
        }
    }

    /// The length of the value's text, as the server writes it. Nothing is written for it.
    fn length(self) -> u64 {
        const QUOTES: u64 = 2;
        let mut length = 0;
        let mut open: SmallVec<[Children; 2]> = SmallVec::new();
        let mut next = Some(self);
        loop {
            if let Some(value) = next.take() {
                length += match value.0 {
                    Location::Null | Location::Bool(true) => 4,
                    Location::Bool(false) => 5,
                    Location::String(text, bytes) => QUOTES + quoted_length(text, bytes as usize),
                    Location::Number(number) => numeric::length(number),
                    Location::Whole(_) | Location::Nested(..) => {
                        open.push(value.children());
                        match value.header() & pg_sys::JB_FSCALAR {
                            0 => "[]".len() as u64,
                            _ => 0,
                        }
                    }
                };
            }
            let Some(innermost) = open.last_mut() else {
                return length;
            };
            match innermost.next_parts() {
                None => drop(open.pop()),
                Some((name, value)) => {
                    if let Some(Jsonb(Location::String(text, bytes))) = name {
                        length += QUOTES + quoted_length(text, bytes as usize) + ": ".len() as u64;
                    }
                    if innermost.left > 0 {
                        length += ", ".len() as u64;
                    }
                    next = Some(value);
                }
            }
        }
    }

    /// The members of an object, `None` if the value is not an object.
    pub fn members(self) -> Option<impl Iterator<Item = (&'static str, Jsonb)>> {
        self.is_object().then(|| self.children())
    }

    /// What is in an object or array, or, of a scalar of its own, that.
    fn children(self) -> Children {
        let is_object = self.is_object();
        let left = (self.header() & pg_sys::JB_CMASK) as usize;
        let parts = self.container().map(|container| match is_object {
            true => (Some(Parts::of(container, 0, 2 * left)), Parts::of(container, left, 2 * left)),
            false => (None, Parts::of(container, 0, left)),
        });
        Children { is_object, left, parts }
    }

    /// What it is, to stand after "must not be": "a string", "an array", "true".
    pub fn what(self) -> &'static str {
        match self.events().next() {
            Event::BeginObject => "an object",
            Event::BeginArray => "an array",
            Event::Null => "null",
            Event::Bool(true) => "true",
            Event::Bool(false) => "false",
            Event::Number(_) => "a number",
            _ => "a string",
        }
    }

    pub fn is_null(self) -> bool {
        let is_scalar = self.header() & pg_sys::JB_FSCALAR != 0;
        match self.0 {
            Location::Whole(_) => is_scalar && matches!(self.events().next(), Event::Null),
            other => matches!(other, Location::Null),
        }
    }

    pub fn is_object(self) -> bool {
        self.header() & pg_sys::JB_FOBJECT != 0
    }

    pub fn as_str(self) -> Option<&'static str> {
        match self.0 {
            Location::String(text, length) => Some(utf8(text, length as usize)),
            _ => None,
        }
    }
}

/// The length that the texts of some values have together, if it is above `most`. That of values
/// whose bytes are few is not measured.
pub fn length_above(most: u64, values: &[Option<Jsonb>]) -> Option<u64> {
    let sum = |of: fn(Jsonb) -> u64| values.iter().flatten().map(|value| of(*value)).sum::<u64>();
    let can_be_above = sum(|value| value.bytes() as u64 * LONGEST_PER_BYTE) > most;
    let length = can_be_above.then(|| sum(Jsonb::length));
    length.filter(|length| *length > most)
}

/// [`length_above`] of values as they are stored, which may have to be fetched to be measured.
pub fn stored_length_above(most: u64, values: &[Datum]) -> Option<u64> {
    let bytes = values.iter().map(|value| stored_bytes(*value)).sum::<u64>();
    if bytes * LONGEST_PER_BYTE <= most {
        return None;
    }
    let measure = || {
        let values = values.iter().map(|value| Some(Jsonb::from_datum(*value)));
        length_above(most, &values.collect::<Vec<_>>())
    };
    Scratch::new().within(measure)
}

/// How many bytes a value of any length has, uncompressed.
pub fn stored_bytes(value: Datum) -> u64 {
    // SAFETY: the callers give a varlena.
    let bytes = unsafe {
        let data: *const pg_sys::varlena = value.cast_mut_ptr();
        let is_short = pgrx::varatt_is_1b(data) && !pgrx::varatt_is_1b_e(data);
        match is_short || pgrx::varatt_is_4b_u(data) {
            true => pgrx::varsize_any(data),
            false => pg_sys::toast_raw_datum_size(value),
        }
    };
    bytes as u64
}

/// What is in an object or array, one after the other; each but an element has a name, which lives
/// as long as the value.
struct Children {
    is_object: bool,
    left: usize,
    /// The names, of an object only, and the values.
    parts: Option<(Option<Parts>, Parts)>,
}

impl Children {
    /// The next one, with its name as it lies there.
    fn next_parts(&mut self) -> Option<(Option<Jsonb>, Jsonb)> {
        // Documents are as large as callers like.
        pgrx::check_for_interrupts!();
        self.left = self.left.checked_sub(1)?;
        let (names, values) = self.parts.as_mut()?;
        Some((names.as_mut().map(Parts::next), values.next()))
    }
}

impl Iterator for Children {
    type Item = (&'static str, Jsonb);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.next_parts()?;
        Some((name.and_then(Jsonb::as_str).unwrap_or(""), value))
    }
}

/// The parts of an object or array, one after the other. First come entries of all of them, of an
/// object those of the names before those of the values, and then their bytes.
struct Parts {
    entry: *const pg_sys::JEntry,
    bytes: *mut u8,
    /// Where the bytes of the next one begin.
    offset: usize,
}

impl Parts {
    /// From this part on.
    fn of(container: *mut pg_sys::JsonbContainer, first: usize, total: usize) -> Parts {
        // SAFETY: a container has an entry of each part.
        unsafe {
            let entries: *mut pg_sys::JEntry = (&raw mut (*container).children).cast();
            Parts {
                entry: entries.add(first),
                bytes: entries.add(total).cast(),
                offset: match first {
                    0 => 0,
                    _ => pg_sys::getJsonbOffset(container, first as i32) as usize,
                },
            }
        }
    }

    /// The next one; the caller knows that there is one.
    fn next(&mut self) -> Jsonb {
        // SAFETY: there is an entry, and it says where its bytes are and what they are.
        unsafe {
            let entry = *self.entry;
            let (begin, said) = (self.offset, (entry & pg_sys::JENTRY_OFFLENMASK) as usize);
            // Some say where they end, the others how long they are.
            self.offset = match entry & pg_sys::JENTRY_HAS_OFF {
                0 => begin + said,
                _ => said,
            };
            self.entry = self.entry.add(1);
            let aligned = begin.next_multiple_of(size_of::<i32>());
            Jsonb(match entry & pg_sys::JENTRY_TYPEMASK {
                pg_sys::JENTRY_ISSTRING => {
                    Location::String(self.bytes.add(begin).cast(), (self.offset - begin) as u32)
                }
                pg_sys::JENTRY_ISNUMERIC => Location::Number(self.bytes.add(aligned).cast()),
                pg_sys::JENTRY_ISBOOL_FALSE => Location::Bool(false),
                pg_sys::JENTRY_ISBOOL_TRUE => Location::Bool(true),
                pg_sys::JENTRY_ISNULL => Location::Null,
                _ => {
                    Location::Nested(self.bytes.add(aligned).cast(), (self.offset - aligned) as u32)
                }
            })
        }
    }
}

/// A walk over a jsonb value; see [`Jsonb::events`]. In place: with the server's own iterator it
/// takes several times as long.
pub struct JsonbEvents {
    /// The objects and arrays that have begun, the innermost last.
    open: SmallVec<[Children; 2]>,
    /// The next value, where it is known.
    value: Option<Jsonb>,
}

impl JsonbEvents {
    fn begin(&mut self, value: Jsonb) -> Event<'static> {
        let header = value.header();
        if header & pg_sys::JB_FSCALAR != 0 {
            let scalar = value.children().next();
            return scalar.map_or(Event::End, |(_, scalar)| scalar.scalar());
        }
        if header & (pg_sys::JB_FOBJECT | pg_sys::JB_FARRAY) == 0 {
            return value.scalar();
        }
        let children = value.children();
        let is_object = children.is_object;
        self.open.push(children);
        match is_object {
            true => Event::BeginObject,
            false => Event::BeginArray,
        }
    }

    fn next_child(&mut self) -> Option<(&'static str, Jsonb)> {
        self.open.last_mut()?.next()
    }
}

impl Events for JsonbEvents {
    fn next(&mut self) -> Event<'_> {
        if let Some(value) = self.value.take() {
            return self.begin(value);
        }
        let is_object = self.open.last().is_some_and(|open| open.is_object);
        match (self.next_child(), is_object) {
            (Some((name, value)), true) => {
                self.value = Some(value);
                Event::Name(Cow::Borrowed(name))
            }
            (Some((_, element)), false) => self.begin(element),
            (None, _) => match self.open.pop() {
                None => Event::End,
                Some(_) if is_object => Event::EndObject,
                Some(_) => Event::EndArray,
            },
        }
    }

    fn skip_value(&mut self) {
        if self.value.take().is_none() {
            self.next_child();
        }
    }
}

impl Jsonb {
    /// The step of a walk that a part which has no parts is.
    fn scalar<'a>(self) -> Event<'a> {
        match self.0 {
            Location::Bool(value) => Event::Bool(value),
            // SAFETY: the output function of a number, whose text lives as long as the memory of
            // the call.
            Location::Number(number) => unsafe {
                let digits = pg_sys::OidOutputFunctionCall(
                    pg_sys::Oid::from(pg_sys::F_NUMERIC_OUT),
                    Datum::from(number),
                );
                Event::Number(Cow::Borrowed(
                    CStr::from_ptr(digits).to_str().expect("numeric digits are ASCII"),
                ))
            },
            Location::String(text, length) => {
                Event::String(Cow::Borrowed(utf8(text, length as usize)))
            }
            Location::Null => Event::Null,
            Location::Whole(_) | Location::Nested(..) => unreachable!("it has parts"),
        }
    }
}

/// No text is longer than its value in bytes by this factor: zeros of a number are not stored, and
/// 10 bytes can have 131,072 digits, 16,383 more behind the point, and a sign.
const LONGEST_PER_BYTE: u64 = (131_072 + 16_383 + 2) / 10 + 1;

/// The length of a string between its quotes, as the server writes it.
fn quoted_length(text: *const c_char, bytes: usize) -> u64 {
    // SAFETY: the caller has found it in a document.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) };
    let count = |is: fn(u8) -> bool| text.iter().filter(|byte| is(**byte)).count();
    let short = count(|byte| matches!(byte, b'"' | b'\\' | 8 | b'\t' | b'\n' | 12 | b'\r'));
    let control = count(|byte| byte < b' ' && !matches!(byte, 8 | b'\t' | b'\n' | 12 | b'\r'));
    // A backslash before the former, and \u00XX for the latter.
    (bytes + short + control * 5) as u64
}

/// A string of the document, as long as that lives. The extension is in UTF-8 databases only.
fn utf8(text: *const c_char, length: usize) -> &'static str {
    // SAFETY: the caller has found it in a document.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast(), length) };
    // Postgres checks what comes in, but not what a function in C makes.
    std::str::from_utf8(bytes).unwrap_or_else(|_| Error::not_utf8().raise())
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use jobs_core::canonical::{Events, Listed, Writer, write};
    use jobs_core::key::Key;
    use jobs_core::paths::Paths;
    use pgrx::pg_sys;
    use pgrx::prelude::*;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    use serde_json::{Value, json};

    use super::{Jsonb, length_above};
    use crate::pg::subxact;

    fn canonical(events: &mut impl Events, paths: Option<&Paths>) -> String {
        let mut out = Writer::new();
        write(events, paths, &mut out).expect("canonical");
        out.finish()
    }

    /// Any JSON that jsonb can hold: no zero character in strings.
    fn any_json() -> impl Strategy<Value = Value> {
        let text = "[a-c.é\u{301}\u{1f600}\"\\\\]{0,4}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e6f64..1e6).prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-d]{1,3}", inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    #[pg_test]
    fn the_walk_in_place_sees_what_parsing_sees() {
        let paths =
            Paths::parse(&["a".into(), "b.c".into(), "d.a.b".into()], "by_args").expect("paths");
        TestRunner::new(Config::with_cases(500))
            .run(&any_json(), |value| {
                let in_place = Jsonb::from_text(&value.to_string());
                prop_assert_eq!(
                    canonical(&mut in_place.events(), None),
                    canonical(&mut Listed::from(&value), None)
                );
                prop_assert_eq!(
                    canonical(&mut in_place.events(), Some(&paths)),
                    canonical(&mut Listed::from(&value), Some(&paths))
                );
                let tree = in_place.to_value("args").expect("not too deep");
                prop_assert_eq!(
                    canonical(&mut Listed::from(&tree), None),
                    canonical(&mut Listed::from(&value), None)
                );
                Ok(())
            })
            .expect("all cases");
    }

    /// Measured without being written, and equal to what the server writes.
    #[pg_test]
    fn lengths_are_those_of_the_text_that_the_server_writes() {
        let check = |text: &str| {
            let written = Spi::get_one_with_args::<i64>(
                "SELECT octet_length($1::jsonb::text)::bigint",
                &[text.into()],
            );
            let written = written.expect("a length").expect("not null") as u64;
            let value = Jsonb::from_text(text);
            assert_eq!(length_above(written - 1, &[Some(value)]), Some(written), "{text}");
            assert_eq!(length_above(written, &[Some(value), None]), None, "{text}");
            let bound = value.bytes() as u64 * super::LONGEST_PER_BYTE;
            assert!(bound >= written, "{text}: {bound}");
        };
        TestRunner::new(Config::with_cases(300))
            .run(&any_json(), |value| {
                check(&value.to_string());
                Ok(())
            })
            .expect("all cases");
        let numbers = "\
            0 -0 0.0 -0.00 1 -1 9 10 99 100 9999 10000 -10000 0.1 -0.0001 0.00001 1.50 \
            123456789012345678901234567890.123456789 1e131071 -1e131071 1e-16383 0e-16383 1e300 \
            1e-70 1e252 1e256 99990000 1e-252 1e-256 12345e-63 12345e-64";
        for number in numbers.split(' ') {
            check(number);
            check(&format!("[{number}, {{\"a\": {number}}}]"));
        }
        check(&format!("1{}.{}", "0".repeat(131_071), "0".repeat(16_383)));
        let controls: String = (1..0x80u8).map(|c| format!("\\u{c:04x}")).collect();
        check(&format!("\"{controls}\""));
        check(&format!("{{\"{controls}\": \"\\\\ \\\" /\"}}"));
        for text in ["{}", "[]", "[[], {}]", "null", "true", "false", "\"\"", "[null, true, false]"]
        {
            check(text);
        }
    }

    /// Equal for the server means the same key, and different another one: the server's
    /// own comparison of jsonb is the oracle.
    #[pg_test]
    fn keys_are_equal_when_jsonb_is() {
        let pair = any_json()
            .prop_flat_map(|value| (Just(value.clone()), prop_oneof![any_json(), Just(value)]));
        TestRunner::new(Config::with_cases(300))
            .run(&pair, |(a, b)| {
                let row = Spi::get_two_with_args::<bool, bool>(
                    "SELECT $1::jsonb = $2::jsonb,
                            jobs.unique_key('k', $1::jsonb, '{\"by_args\": true}') = jobs.unique_key('k', $2::jsonb, '{\"by_args\": true}')",
                    &[a.to_string().into(), b.to_string().into()],
                )
                .expect("both keys");
                prop_assert_eq!(row.0, row.1, "{} and {}", a, b);
                Ok(())
            })
            .expect("all cases");
    }

    /// Whether some work ends because the statement was cancelled before.
    fn can_be_cancelled(work: impl FnOnce()) -> bool {
        // SAFETY: what the signal handler of a cancellation sets.
        let cancel = |is_cancelled: bool| unsafe {
            pg_sys::QueryCancelPending = is_cancelled.into();
            pg_sys::InterruptPending = is_cancelled.into();
        };
        let done = subxact::attempt(|| {
            cancel(true);
            work();
            cancel(false);
        });
        let code = done.map_err(|error| subxact::describe(&error).0);
        code == Err(PgSqlErrorCode::ERRCODE_QUERY_CANCELED)
    }

    #[pg_test]
    fn work_on_documents_can_be_cancelled() {
        let document = Jsonb::from_text(r#"{"a": [1, {"b": "c"}]}"#);
        assert!(can_be_cancelled(|| {
            canonical(&mut document.events(), None);
        }));
        assert!(can_be_cancelled(|| drop(document.to_value("args"))));
        let long = "x".repeat(1_000_000);
        assert!(can_be_cancelled(|| _ = Key::of(&long)));
        assert!(!can_be_cancelled(|| _ = Key::of("{}")), "control");
    }

    /// The vectors of the core crate, through SQL.
    #[pg_test]
    fn the_vectors_have_their_keys_in_the_server() {
        let vectors: Vec<Value> =
            serde_json::from_str(include_str!("../../core/tests/core/vectors/unique_keys.json"))
                .expect("vectors");
        assert!(vectors.len() >= 25);
        for vector in &vectors {
            let text = |name: &str| match &vector[name] {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
            let key = |kind: String| {
                Spi::get_one_with_args::<String>(
                    "SELECT jobs.unique_key($1, $2::jsonb, $3::jsonb, $4, $5::jsonb, $6::timestamptz)",
                    &[
                        kind.into(),
                        text("args").into(),
                        text("unique_opts").into(),
                        text("queue").into(),
                        text("meta").into(),
                        text("scheduled_at").into(),
                    ],
                )
                .expect("a key")
            };
            assert_eq!(key(text("kind").expect("kind")), text("unique_key"), "{}", vector["name"]);
            if vector["unique_opts"]["exclude_kind"] != json!(true) {
                assert_ne!(
                    key("another_kind".into()),
                    text("unique_key"),
                    "control: {}",
                    vector["name"]
                );
            }
        }
    }
}
