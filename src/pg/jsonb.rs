//! jsonb arguments, walked in place instead of being turned into text and parsed.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

use jobs_core::canonical::{Event, Events};
use pgrx::pg_sys::{self, Datum, JsonbIteratorToken as Token, jbvType};
use serde_json::{Map, Number, Value};

use crate::error::{Error, Result};

/// The deepest options: more than any of them needs, and far from what a stack holds.
const DEEPEST: u32 = 32;

/// A jsonb argument, detoasted. Lives as long as the memory of the call.
#[derive(Clone, Copy)]
pub struct Jsonb(*mut pg_sys::Jsonb);

/// Lets a type that wraps a detoasted varlena be an argument of a `#[pg_extern]`.
macro_rules! varlena_argument {
    ($type:ident, $sql:literal, $wrap:expr) => {
        // SAFETY: the function's declaration in sql/ gives this argument a varlena type.
        unsafe impl<'fcx> pgrx::callconv::ArgAbi<'fcx> for $type {
            unsafe fn unbox_arg_unchecked(arg: pgrx::callconv::Arg<'_, 'fcx>) -> Self {
                unsafe {
                    arg.unbox_arg_using_from_datum::<$type>()
                        .expect("not null: checked by Option")
                }
            }
        }
        impl pgrx::FromDatum for $type {
            unsafe fn from_polymorphic_datum(
                datum: pgrx::pg_sys::Datum,
                is_null: bool,
                _: pgrx::pg_sys::Oid,
            ) -> Option<Self> {
                #[allow(clippy::redundant_closure_call)]
                (!is_null).then(|| unsafe {
                    ($wrap)(pgrx::pg_sys::pg_detoast_datum(datum.cast_mut_ptr()))
                })
            }
        }
        // SAFETY: used only by functions whose SQL is written by hand.
        unsafe impl pgrx::pgrx_sql_entity_graph::metadata::SqlTranslatable for $type {
            const TYPE_IDENT: &'static str = pgrx::pgrx_resolved_type!($type);
            const TYPE_ORIGIN: pgrx::pgrx_sql_entity_graph::metadata::TypeOrigin =
                pgrx::pgrx_sql_entity_graph::metadata::TypeOrigin::External;
            const ARGUMENT_SQL: std::result::Result<
                pgrx::pgrx_sql_entity_graph::metadata::SqlMappingRef,
                pgrx::pgrx_sql_entity_graph::metadata::ArgumentError,
            > = Ok(pgrx::pgrx_sql_entity_graph::metadata::SqlMappingRef::literal($sql));
            const RETURN_SQL: std::result::Result<
                pgrx::pgrx_sql_entity_graph::metadata::ReturnsRef,
                pgrx::pgrx_sql_entity_graph::metadata::ReturnsError,
            > = Ok(pgrx::pgrx_sql_entity_graph::metadata::ReturnsRef::One(
                pgrx::pgrx_sql_entity_graph::metadata::SqlMappingRef::literal($sql),
            ));
        }
    };
}
pub(crate) use varlena_argument;

varlena_argument!(Jsonb, "jsonb", |p: *mut pg_sys::varlena| Jsonb(p.cast()));

/// A jsonb that outlives the call that it came in.
#[derive(Clone)]
pub struct Kept(Box<[u64]>);

impl Kept {
    /// A copy.
    pub fn new(value: Jsonb) -> Kept {
        let bytes = value.bytes();
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        // SAFETY: there is room for the bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), words.as_mut_ptr().cast(), bytes.len());
        }
        Kept(words.into_boxed_slice())
    }

    /// The value, as long as this lives.
    pub fn get(&self) -> Jsonb {
        Jsonb(self.0.as_ptr().cast_mut().cast())
    }
}

impl Jsonb {
    /// From a jsonb datum, for example an element of an array.
    pub fn from_datum(datum: Datum) -> Jsonb {
        // SAFETY: the caller took it from a jsonb; detoasting copies only if needed.
        Jsonb(unsafe { pg_sys::pg_detoast_datum(datum.cast_mut_ptr()) }.cast())
    }

    /// The value `{}`.
    pub fn empty_object() -> Jsonb {
        Jsonb::from_text("{}")
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

    /// The datum to hand on as it came.
    pub fn datum(self) -> Datum {
        Datum::from(self.0)
    }

    /// The bytes of the value: equal bytes are equal values.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a detoasted varlena carries its own length.
        unsafe {
            let p: *const pg_sys::varlena = self.0.cast();
            std::slice::from_raw_parts(p.cast(), pgrx::varsize_4b(p))
        }
    }

    /// A walk over the value.
    pub fn events(self) -> JsonbEvents {
        JsonbEvents {
            // SAFETY: root is the container inside a detoasted jsonb.
            iterator: unsafe { pg_sys::JsonbIteratorInit(&raw mut (*self.0).root) },
            raw_scalar: false,
            absent: false,
        }
    }

    /// The whole value of this parameter, for small documents such as options.
    pub fn to_value(self, parameter: &str) -> Result<Value> {
        let mut events = self.events();
        let first = Owned::from(events.next());
        tree(first, &mut events, DEEPEST).ok_or_else(|| {
            Error::invalid(
                parameter,
                format!("{parameter} is nested too deeply"),
                format!("{parameter} is at most {DEEPEST} levels deep."),
            )
        })
    }

    /// The elements of an array, `None` if the value is not an array.
    pub fn elements(self) -> Option<Vec<Jsonb>> {
        self.children(Token::WJB_BEGIN_ARRAY)
            .map(|children| children.into_iter().map(|(_, value)| value).collect())
    }

    /// The members of an object, `None` if the value is not an object.
    pub fn members(self) -> Option<Vec<(String, Jsonb)>> {
        self.children(Token::WJB_BEGIN_OBJECT)
    }

    fn children(self, begin: Token::Type) -> Option<Vec<(String, Jsonb)>> {
        let mut found = Vec::new();
        let mut name = String::new();
        let mut events = self.events();
        let (token, value) = events.step(false);
        // SAFETY: an array token carries the array member.
        if token != begin
            || (begin == Token::WJB_BEGIN_ARRAY && unsafe { value.val.array.rawScalar })
        {
            return None;
        }
        loop {
            // Skipping nested values hands each child over as one value.
            let (token, mut value) = events.step(true);
            match token {
                Token::WJB_KEY => name = text(&value).into_owned(),
                Token::WJB_VALUE | Token::WJB_ELEM => {
                    // SAFETY: the iterator filled the value.
                    let child = Jsonb(unsafe { pg_sys::JsonbValueToJsonb(&mut value) });
                    found.push((std::mem::take(&mut name), child));
                }
                _ => return Some(found),
            }
        }
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

    /// JSON null.
    pub fn is_null(self) -> bool {
        matches!(self.events().next(), Event::Null)
    }

    /// An object.
    pub fn is_object(self) -> bool {
        matches!(self.events().next(), Event::BeginObject)
    }
}

/// A walk over a jsonb value; see [`Jsonb::events`].
pub struct JsonbEvents {
    iterator: *mut pg_sys::JsonbIterator,
    /// A scalar at the top is stored as an array of one that is not one.
    raw_scalar: bool,
    /// There is no value to walk over: it reads as null, once.
    absent: bool,
}

impl JsonbEvents {
    /// The walk over a value that was left out.
    pub fn of_nothing() -> JsonbEvents {
        JsonbEvents {
            iterator: std::ptr::null_mut(),
            raw_scalar: false,
            absent: true,
        }
    }

    fn step(&mut self, skip_nested: bool) -> (Token::Type, pg_sys::JsonbValue) {
        // Documents are as large as callers like.
        pgrx::check_for_interrupts!();
        let mut value = std::mem::MaybeUninit::<pg_sys::JsonbValue>::zeroed();
        // SAFETY: the iterator comes from JsonbIteratorInit and is null only at the end.
        unsafe {
            let token = if self.iterator.is_null() {
                Token::WJB_DONE
            } else {
                pg_sys::JsonbIteratorNext(&mut self.iterator, value.as_mut_ptr(), skip_nested)
            };
            (token, value.assume_init())
        }
    }
}

impl Events for JsonbEvents {
    fn next(&mut self) -> Event<'_> {
        if std::mem::take(&mut self.absent) {
            return Event::Null;
        }
        loop {
            let (token, value) = self.step(false);
            return match token {
                // SAFETY: an array token carries the array member.
                Token::WJB_BEGIN_ARRAY if unsafe { value.val.array.rawScalar } => {
                    self.raw_scalar = true;
                    continue;
                }
                Token::WJB_END_ARRAY if self.raw_scalar => Event::End,
                Token::WJB_BEGIN_ARRAY => Event::BeginArray,
                Token::WJB_END_ARRAY => Event::EndArray,
                Token::WJB_BEGIN_OBJECT => Event::BeginObject,
                Token::WJB_END_OBJECT => Event::EndObject,
                Token::WJB_KEY => Event::Name(text(&value)),
                Token::WJB_VALUE | Token::WJB_ELEM => scalar(&value),
                _ => Event::End,
            };
        }
    }

    fn skip_value(&mut self) {
        self.step(true);
    }
}

fn scalar<'a>(value: &pg_sys::JsonbValue) -> Event<'a> {
    match value.type_ {
        jbvType::jbvNull => Event::Null,
        // SAFETY: the type says which member of the union is set.
        jbvType::jbvBool => Event::Bool(unsafe { value.val.boolean }),
        jbvType::jbvNumeric => unsafe {
            let digits = pg_sys::OidOutputFunctionCall(
                pg_sys::Oid::from(pg_sys::F_NUMERIC_OUT),
                Datum::from(value.val.numeric),
            );
            Event::Number(Cow::Borrowed(
                CStr::from_ptr(digits)
                    .to_str()
                    .expect("numeric digits are ASCII"),
            ))
        },
        _ => Event::String(text(value)),
    }
}

/// A string of the document. The extension is in UTF-8 databases only.
fn text<'a>(value: &pg_sys::JsonbValue) -> Cow<'a, str> {
    // SAFETY: the caller has a string; its bytes live as long as the document.
    let bytes = unsafe {
        let string = value.val.string;
        std::slice::from_raw_parts(string.val.cast(), string.len as usize)
    };
    Cow::Borrowed(std::str::from_utf8(bytes).unwrap_or_else(|_| Error::not_utf8().raise()))
}

/// An event without its borrow, to build a tree from.
enum Owned {
    Leaf(Value),
    Array,
    Object,
    Name(String),
    End,
}

impl From<Event<'_>> for Owned {
    fn from(event: Event<'_>) -> Owned {
        match event {
            Event::BeginArray => Owned::Array,
            Event::BeginObject => Owned::Object,
            Event::Name(name) => Owned::Name(name.into_owned()),
            Event::Null => Owned::Leaf(Value::Null),
            Event::Bool(b) => Owned::Leaf(Value::Bool(b)),
            Event::String(s) => Owned::Leaf(Value::String(s.into_owned())),
            Event::Number(n) => {
                let number: Number = n.parse().expect("numeric prints JSON numbers");
                Owned::Leaf(Value::Number(number))
            }
            Event::EndArray | Event::EndObject | Event::End => Owned::End,
        }
    }
}

/// Nothing if it is deeper than that.
fn tree(first: Owned, events: &mut JsonbEvents, depth: u32) -> Option<Value> {
    if depth == 0 {
        return None;
    }
    match first {
        Owned::Leaf(value) => Some(value),
        Owned::Array => {
            let mut list = Vec::new();
            loop {
                match Owned::from(events.next()) {
                    Owned::End => return Some(Value::Array(list)),
                    item => list.push(tree(item, events, depth - 1)?),
                }
            }
        }
        Owned::Object => {
            let mut map = Map::new();
            while let Owned::Name(name) = Owned::from(events.next()) {
                let item = Owned::from(events.next());
                map.insert(name, tree(item, events, depth - 1)?);
            }
            Some(Value::Object(map))
        }
        Owned::Name(_) | Owned::End => Some(Value::Null),
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use std::borrow::Cow;

    use jobs_core::canonical::{Event, Events, Writer, write};
    use jobs_core::key::Key;
    use jobs_core::paths::Paths;
    use pgrx::pg_sys;
    use pgrx::prelude::*;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    use serde_json::{Value, json};

    use super::Jsonb;
    use crate::pg::subxact;

    fn canonical(events: &mut impl Events, paths: Option<&Paths>) -> String {
        let mut out = Writer::new();
        write(events, paths, &mut out).expect("canonical");
        out.finish()
    }

    /// The walk over a parsed text: what the walk in place must be equal to.
    struct Listed(std::vec::IntoIter<Event<'static>>);

    impl Listed {
        fn of(value: &Value) -> Listed {
            fn list(value: &Value, events: &mut Vec<Event<'static>>) {
                match value {
                    Value::Null => events.push(Event::Null),
                    Value::Bool(flag) => events.push(Event::Bool(*flag)),
                    Value::Number(number) => {
                        events.push(Event::Number(Cow::Owned(number.to_string())))
                    }
                    Value::String(text) => events.push(Event::String(Cow::Owned(text.clone()))),
                    Value::Array(items) => {
                        events.push(Event::BeginArray);
                        items.iter().for_each(|item| list(item, events));
                        events.push(Event::EndArray);
                    }
                    Value::Object(members) => {
                        events.push(Event::BeginObject);
                        for (name, item) in members {
                            events.push(Event::Name(Cow::Owned(name.clone())));
                            list(item, events);
                        }
                        events.push(Event::EndObject);
                    }
                }
            }
            let mut events = Vec::new();
            list(value, &mut events);
            Listed(events.into_iter())
        }
    }

    impl Events for Listed {
        fn next(&mut self) -> Event<'_> {
            self.0.next().unwrap_or(Event::End)
        }

        fn skip_value(&mut self) {
            let mut depth = 0;
            loop {
                match self.next() {
                    Event::BeginObject | Event::BeginArray => depth += 1,
                    Event::EndObject | Event::EndArray => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    return;
                }
            }
        }
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
                    canonical(&mut Listed::of(&value), None)
                );
                prop_assert_eq!(
                    canonical(&mut in_place.events(), Some(&paths)),
                    canonical(&mut Listed::of(&value), Some(&paths))
                );
                let tree = in_place.to_value("args").expect("not too deep");
                prop_assert_eq!(
                    canonical(&mut Listed::of(&tree), None),
                    canonical(&mut Listed::of(&value), None)
                );
                Ok(())
            })
            .expect("all cases");
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

    /// Whether some work ends because somebody has cancelled the statement before.
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
        assert!(can_be_cancelled(|| drop(document.to_value())));
        let long = "x".repeat(1_000_000);
        assert!(can_be_cancelled(|| _ = Key::of(&long)));
        assert!(!can_be_cancelled(|| _ = Key::of("{}")), "control");
    }

    /// The vectors of the core crate, through SQL.
    #[pg_test]
    fn the_vectors_have_their_keys_in_the_server() {
        let vectors: Vec<Value> =
            serde_json::from_str(include_str!("../../core/tests/vectors/unique_keys.json"))
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
            assert_eq!(
                key(text("kind").expect("kind")),
                text("unique_key"),
                "{}",
                vector["name"]
            );
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
