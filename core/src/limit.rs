//! The keys of a limit: what its jobs are told apart by.

use serde_json::{Value, json};

use crate::Invalid;
use crate::canonical::{Events, Listed, Writer, write};
use crate::dimension::Dimension;
use crate::error::shown;
use crate::given::Given;
use crate::key::{self, Key, Parts};
use crate::paths;
use crate::policy::{self, Part, Policy};

/// What of a job makes its key under a limit. What a job lacks is left out, so that such jobs share
/// a key.
#[derive(Clone, Debug)]
pub struct By(Policy);

impl PartialEq for By {
    fn eq(&self, other: &By) -> bool {
        self.to_json() == other.to_json()
    }
}

const FIELDS: [&str; 4] = ["by_args", "by_meta", "by_kind", "by_queue"];
const RULE: &str = "by must be an object of by_args, by_meta, by_kind or by_queue, such as {\"by_args\": [\"tenant\"]}.";

impl By {
    /// Reads `{"by_args": ["tenant"]}` and the like, with one field at least.
    pub fn parse(by: &Value) -> Result<By, Invalid> {
        By::parse_or(by, "Omit by for one limit of all jobs together.")
    }

    /// Reads the same of an order.
    pub fn of_order(by: &Value) -> Result<By, Invalid> {
        By::parse_or(by, "To remove the order, pass by => null.")
    }

    /// `if_empty` is the hint if `by` has no field.
    fn parse_or(by: &Value, if_empty: &str) -> Result<By, Invalid> {
        let given = Given::of("by", by, &FIELDS, RULE)?;
        let policy = Policy {
            by_args: policy::by_args(&given)?.optional(),
            by_meta: policy::by_meta(&given)?.optional(),
            by_queue: given.flag("by_queue")?,
            exclude_kind: !given.flag("by_kind")?,
            ..Policy::default()
        };
        match given.first_of(&FIELDS) {
            Some(_) => Ok(By(policy)),
            None => Err(Invalid::new("by", "by must not be empty", RULE).hint(if_empty)),
        }
    }

    /// What [`parse`](Self::parse) reads as this.
    pub fn to_json(&self) -> Value {
        let By(policy) = self;
        let fields = [
            ("by_args", policy.by_args.to_json()),
            ("by_meta", policy.by_meta.to_json()),
            ("by_kind", json!(!policy.exclude_kind)),
            ("by_queue", json!(policy.by_queue)),
        ];
        let given = fields.into_iter().filter(|(_, value)| *value != json!(false));
        given.map(|(field, value)| (field.to_string(), value)).collect()
    }

    /// The canonical text of a job's key: an object of the members `args`, `meta`, `queue` and
    /// `type` that the limit asks for. Refused are args and meta that [`key::canonical`] refuses.
    pub fn key<A: Events, M: Events>(
        &self,
        kind: &str,
        queue: &str,
        args: impl Fn() -> A,
        meta: impl Fn() -> M,
    ) -> Result<String, Invalid> {
        key::canonical(&self.0, &Parts { kind, queue, at_micros: 0 }, args, meta)
    }

    /// The canonical text of a key as a person gives it: the object of its members or, where one
    /// path alone makes the key, a value that is no object.
    pub fn given(&self, key: &Value) -> Result<String, Invalid> {
        let mut whole = key.clone();
        if let (Some((member, names)), false) = (self.only_path(), key.is_object()) {
            whole = Value::Null;
            put(&mut whole, member, &names, key.clone());
        }
        let events = |member| Listed::from(whole.get(member).unwrap_or(&Value::Null));
        let word = |member| whole.get(member).and_then(Value::as_str).unwrap_or_default();
        let text = self.key(word("type"), word("queue"), || events("args"), || events("meta"))?;
        let mut out = Writer::new();
        write(&mut Listed::from(&whole), None, &mut out).map_err(|flaw| flaw.of("key"))?;
        match out.finish() == text {
            true => Ok(text),
            false => Err(self.mismatch(key)),
        }
    }

    /// Whether jobs with the same key have the same value in a dimension.
    pub fn contains(&self, dimension: &Dimension) -> bool {
        dimension.is_part_of(&self.0)
    }

    /// The paths of args and of meta, each as the names it leads through.
    fn paths(&self) -> Vec<(&'static str, Vec<String>)> {
        let By(policy) = self;
        let of = |member, part: &Part| match part {
            Part::Optional(paths) => paths
                .to_list()
                .iter()
                .map(|path| (member, paths::split(path, member).expect("it was read before")))
                .collect(),
            _ => Vec::new(),
        };
        [of("args", &policy.by_args), of("meta", &policy.by_meta)].concat()
    }

    /// The path that alone makes the key.
    fn only_path(&self) -> Option<(&'static str, Vec<String>)> {
        let By(policy) = self;
        let is_plain =
            policy.exclude_kind && !policy.by_queue && !matches!(policy.by_args, Part::All);
        let mut paths = self.paths();
        (is_plain && paths.len() == 1).then(|| paths.remove(0))
    }

    fn mismatch(&self, key: &Value) -> Invalid {
        let By(policy) = self;
        let mut form = Value::Null;
        for (member, names) in self.paths() {
            put(&mut form, member, &names, json!(".."));
        }
        if let Part::All = policy.by_args {
            form["args"] = json!({});
        }
        if policy.by_queue {
            form["queue"] = json!("..");
        }
        if !policy.exclude_kind {
            form["type"] = json!("..");
        }
        let rule = format!("A key must have the form {form}.");
        let invalid = Invalid::new("key", "key does not fit by", rule);
        if self.only_path().is_some() {
            return invalid.hint("If the value is not an object, you can give it alone.");
        }
        // A name may have been given in place of the object.
        let members = form.as_object_mut().filter(|members| members.len() == 1);
        let only = members.and_then(|members| members.values_mut().next());
        match (only, key) {
            (Some(only @ Value::String(_)), Value::String(name)) => {
                *only = shown(name).into();
                invalid.hint(format!("Did you mean {form}?"))
            }
            _ => invalid,
        }
    }
}

/// Sets a member of a member of an object, and so on.
fn put(object: &mut Value, member: &str, names: &[String], value: Value) {
    *names.iter().fold(&mut object[member], |place, name| &mut place[name]) = value;
}

/// The number under which a key of a limit is known: the first 8 bytes of the SHA-256 of the
/// limit's name, a zero byte and the key's canonical text, which is empty for a limit without keys.
pub fn gate(name: &str, key: &str) -> i64 {
    Key::of(&format!("{name}\0{key}")).lock_id(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(value: Value) -> By {
        By::parse(&value).expect("by")
    }

    fn key(by: &By, args: Value, meta: Value) -> String {
        by.key("k", "q", || Listed::from(&args), || Listed::from(&meta)).expect("a key")
    }

    #[test]
    fn a_key_has_what_is_asked_for_and_there() {
        for (asked, text) in [
            (json!({"by_args": ["t", "a.b"]}), r#"{"args":{"a":{"b":null},"t":1}}"#),
            (json!({"by_args": ["x"], "by_meta": ["m"]}), r#"{"args":{},"meta":{"m":"v"}}"#),
            (json!({"by_args": true}), r#"{"args":{"a":{"b":null},"t":1}}"#),
            (json!({"by_kind": true, "by_queue": true}), r#"{"queue":"q","type":"k"}"#),
        ] {
            let by = by(asked);
            assert_eq!(key(&by, json!({"t": 1.0, "a": {"b": null}}), json!({"m": "v"})), text);
            assert_eq!(by.given(&serde_json::from_str(text).unwrap()).as_deref(), Ok(text));
            assert!(by == By::parse(&by.to_json()).unwrap());
        }
    }

    #[test]
    fn the_value_of_an_only_path_is_a_key() {
        let tenant = by(json!({"by_args": ["a.t"], "by_queue": false}));
        for (given, text) in [
            (json!("acme"), r#"{"args":{"a":{"t":"acme"}}}"#),
            (json!([1]), r#"{"args":{"a":{"t":[1]}}}"#),
            (json!(null), r#"{"args":{"a":{"t":null}}}"#),
            (json!({"args": {"a": {"t": {"b": 1}}}}), r#"{"args":{"a":{"t":{"b":1}}}}"#),
            (json!({"args": {}}), r#"{"args":{}}"#),
        ] {
            assert_eq!(tenant.given(&given).as_deref(), Ok(text));
        }
        for given in [json!({"t": 1}), json!({}), json!({"args": {"t": 1}}), json!({"args": 1})] {
            let refused = tenant.given(&given).unwrap_err();
            assert_eq!(refused.detail, r#"A key must have the form {"args":{"a":{"t":".."}}}."#);
        }
    }

    #[test]
    fn other_keys_are_objects_of_all_their_members() {
        let by = by(json!({"by_args": ["t"], "by_queue": true}));
        let fits = |key| by.given(&key).is_ok();
        assert!(fits(json!({"args": {"t": 1}, "queue": "q"})));
        for key in [json!(1), json!({"args": {"t": 1}}), json!({"args": {"t": 1}, "queue": 1})] {
            assert!(!fits(key));
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for (by, message) in [
            (json!({}), "by must not be empty"),
            (json!({"by_kind": false, "by_args": null}), "by must not be empty"),
            (json!([]), "by must not be an array"),
            (json!({"by_args": []}), "by.by_args must not be an empty list"),
            (json!({"by_meta": true}), "by.by_meta must not be true"),
            (json!({"by_arg": ["t"]}), "field \"by_arg\" of by is not known"),
        ] {
            assert_eq!(By::parse(&by).unwrap_err().message, message);
        }
    }

    #[test]
    fn a_gate_is_of_a_name_and_a_key() {
        // printf 'api\0' | sha256sum
        assert_eq!(gate("api", ""), 0x7bb8_207d_9c7b_e36e);
        assert_ne!(gate("a", "pi"), gate("ap", "i"));
    }
}
