//! Thousands of random options and args through the server: what is asked for is done or refused,
//! and equal is one key.
//!
//! `JOBS_SEED=<seed> ./dev test server:policy_fuzz` repeats a run.

use jobs_tests::{Client, quiet, rng, row_of, run};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use serde_json::Value;
use tokio_postgres::Row;

#[path = "../../core/tests/core/policy_words.rs"]
mod policy_words;
use policy_words::{FIELDS, WORDS};

/// JSON as it is written: numbers as they are spelled, members in their order, and more than once.
#[derive(Clone, Debug)]
enum Json {
    /// A number, true, false or null.
    Word(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    fn read(text: &str) -> Json {
        Json::of(&serde_json::from_str(text).expect(text))
    }

    fn of(value: &Value) -> Json {
        match value {
            Value::String(text) => Json::Text(text.clone()),
            Value::Array(elements) => Json::List(elements.iter().map(Json::of).collect()),
            Value::Object(members) => Json::Object(
                members.iter().map(|(name, value)| (name.clone(), Json::of(value))).collect(),
            ),
            word => Json::Word(word.to_string()),
        }
    }

    fn write(&self) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let joined = |parts: Vec<String>| parts.join(", ");
        match self {
            Json::Word(word) => word.clone(),
            Json::Text(text) => quoted(text),
            Json::List(elements) => {
                format!("[{}]", joined(elements.iter().map(Json::write).collect()))
            }
            Json::Object(members) => {
                let member =
                    |(name, value): &(String, Json)| format!("{}: {}", quoted(name), value.write());
                format!("{{{}}}", joined(members.iter().map(member).collect()))
            }
        }
    }

    /// How many values it consists of.
    fn size(&self) -> usize {
        1 + match self {
            Json::List(elements) => elements.iter().map(Json::size).sum(),
            Json::Object(members) => members.iter().map(|(_, value)| value.size()).sum(),
            _ => 0,
        }
    }

    /// The value at a place; places are counted from the outermost one.
    fn at(&mut self, place: &mut usize) -> Option<&mut Json> {
        if *place == 0 {
            return Some(self);
        }
        *place -= 1;
        match self {
            Json::List(elements) => elements.iter_mut().find_map(|element| element.at(place)),
            Json::Object(members) => members.iter_mut().find_map(|(_, value)| value.at(place)),
            _ => None,
        }
    }

    fn any_place(&mut self, rng: &mut StdRng) -> &mut Json {
        let mut place = rng.random_range(0..self.size());
        self.at(&mut place).expect("it is one of them")
    }
}

/// Options that are accepted, every field at least once among them but those of holds.
const ACCEPTED: [&str; 17] = [
    r#"{"by_kind": true}"#,
    r#"{"by_args": true, "by_queue": true, "by_period": 900, "wait": false}"#,
    r#"{"by_args": ["user_id", "b.c", "a\\.b"], "by_meta": ["tenant_id"], "by_state": ["running", "completed"], "exclude_kind": true}"#,
    r#"{"key": "k", "window": "PT15M", "window_from": "scheduled_at", "on_conflict": "reject"}"#,
    r#"{"by_period": "1 day 2 hours", "by_kind": false, "on_conflict": "replace_except_schedule"}"#,
    r#"{"by_kind": true, "on_conflict": {"update": {"*": ["args", "meta"], "running": ["priority", "tags"]}}}"#,
    r#"{"by_state": ["available"], "window": "1 month", "on_conflict": "replace"}"#,
    r#"{"by_args": true, "by_state": [], "hold_for": "1 month", "hold_until": "start"}"#,
    r#"{"by_meta": ["t"], "window": 60, "hold_for": 1.5, "on_conflict": "reject"}"#,
    r#"{"faktory": {"unique_for": 600.0, "unique_until": "start"}, "on_conflict": "replace"}"#,
    r#"{"oban": true, "wait": false}"#,
    r#"{"oban": {"period": [2, "minutes"], "fields": ["worker", "args"], "keys": ["id"], "states": "all", "timestamp": "scheduled_at", "replace": ["args", "worker"]}}"#,
    r#"{"oban": {"period": "infinity", "fields": ["meta"], "states": ["executing"], "replace": {"executing": ["tags"]}}}"#,
    r#"{"oban": {}, "on_conflict": "reject"}"#,
    r#"{"ojs": {"keys": ["type", "queue", "args", "meta"], "args_keys": ["id"], "meta_keys": ["t"], "period": "P7D", "states": ["active", "completed"], "on_conflict": "replace"}}"#,
    r#"{"ojs": {"on_conflict": "ignore"}, "wait": true}"#,
    r#"{"ojs": {}, "on_conflict": {"update": {"available": ["scheduled_at", "max_attempts"]}}}"#,
];

const BARE: &str = "null true true false 0 1 2 60 900 -1 -0.0 0.5 1.5 0.9999995 0.0000004 1e3 \
    31536000 9000000000000 9223372036854 9223372036855 1e30 1e400 -1e400 123456789012345678901234567890";

fn scalar(rng: &mut StdRng) -> Json {
    if rng.random_bool(0.5) {
        Json::Text(WORDS.choose(rng).unwrap().to_string())
    } else {
        Json::Word(BARE.split(' ').collect::<Vec<_>>().choose(rng).unwrap().to_string())
    }
}

/// Any JSON of the words that options consist of.
fn any_options(rng: &mut StdRng, depth: u32) -> Json {
    match rng.random_range(0..if depth == 0 { 2 } else { 6 }) {
        0 | 1 => scalar(rng),
        2 => Json::List((0..rng.random_range(0..4)).map(|_| scalar(rng)).collect()),
        _ => Json::Object(
            (0..rng.random_range(0..5))
                .map(|_| (FIELDS.choose(rng).unwrap().to_string(), any_options(rng, depth - 1)))
                .collect(),
        ),
    }
}

/// Text with a small mistake.
fn mistyped(text: &str, rng: &mut StdRng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let at = rng.random_range(0..=chars.len());
    match rng.random_range(0..4) {
        0 => chars.insert(at, *['a', '_', '.', '\\', 'É', '7'].choose(rng).unwrap()),
        1 if at < chars.len() => drop(chars.remove(at)),
        2 if at > 0 && at < chars.len() => chars.swap(at - 1, at),
        _ => return text.to_uppercase(),
    }
    chars.into_iter().collect()
}

/// Changes one thing somewhere.
fn mutate(options: &mut Json, rng: &mut StdRng) {
    let kind = rng.random_range(0..7);
    let field = FIELDS.choose(rng).unwrap().to_string();
    let new = if rng.random_bool(0.7) { scalar(rng) } else { any_options(rng, 2) };
    let index = rng.random_range(0..8);
    let place = options.any_place(rng);
    match (kind, place) {
        (0, place) => *place = new,
        (1, place) => *place = Json::List(vec![place.clone()]),
        (2, Json::List(elements)) if !elements.is_empty() => {
            elements.remove(index % elements.len());
        }
        (2, Json::Object(members)) if !members.is_empty() => {
            members.remove(index % members.len());
        }
        (3, Json::Object(members)) if !members.is_empty() => {
            let count = members.len();
            members[index % count].0 = field;
        }
        (4, Json::Object(members)) if !members.is_empty() => {
            let count = members.len();
            let name = &mut members[index % count].0;
            *name = mistyped(name, rng);
        }
        (4, Json::Text(text)) => *text = mistyped(text, rng),
        (_, Json::List(elements)) => elements.push(new),
        (_, Json::Object(members)) => members.push((field, new)),
        (_, place) => *place = new,
    }
}

/// What the server answers to options: SQLSTATE, or `ok`, from each way in, and what
/// `explain_unique` shows.
#[derive(Clone, Debug, PartialEq)]
struct Probe {
    options: String,
    explained: String,
    detail: Option<String>,
    /// Of unique_key, insert, insert_batch and insert_many; each as `explained`.
    others: Vec<String>,
    key: Option<String>,
    /// The keys that unique_key answers and the inserted jobs have.
    other_keys: Vec<Option<String>>,
    policy: Option<String>,
    /// The policy as options again.
    again: Option<String>,
    again_key: Option<String>,
    again_policy: Option<String>,
    /// The policy has what the native form has no words for.
    beyond_native: bool,
}

const PROBE: &str = r#"
create function probe(o jsonb, out explained text, out detail text, out others text[], out key text, out other_keys text[], out policy jsonb,
                      out again text, out again_key text, out again_policy jsonb) language plpgsql as $$
declare
  args constant jsonb := '{"a": 1, "b": {"c": [1, 2]}, "user_id": 42, "id": 7, "a.b": 3, "\\": 4, "café": 5, "*": null}';
  meta constant jsonb := '{"a": 1, "t": 2, "tenant_id": "x", "id": 8}';
  at constant timestamptz := '2999-01-01 10:30:00.5Z';
  call text; answer text; other_key text; e record;
begin
  begin
    select * into e from jobs.explain_unique('k', args, o, 'q', meta, at);
    explained := case e.would when 'insert' then 'ok' else e.would end;
    key := e.unique_key;
    policy := e.policy;
  exception when others then
    explained := sqlstate;
    get stacked diagnostics detail = pg_exception_detail;
  end;
  foreach call in array array[
    'jobs.unique_key(''k'', $1, $2, ''q'', $3, $4)',
    'jobs.insert(''k'', $1, $2, ''q'', meta => $3, scheduled_at => $4)',
    'jobs.insert_batch(''k'', array[$1], $2, ''q'', meta => $3, scheduled_at => $4)',
    'jobs.insert_many(jsonb_build_array(jsonb_build_object(''kind'', ''k'', ''args'', $1, ''unique_opts'', $2, ''queue'', ''q'', ''meta'', $3, ''scheduled_at'', $4)))'
  ] loop
    other_key := null;
    begin
      execute 'select x::text from ' || call || ' x' into other_key using args, o, meta, at;
      if call not like 'jobs.unique_key%' then
        select encode(unique_key, 'hex') into strict other_key from jobs.job;
      end if;
      raise exception using errcode = 'ZZ000';
    exception when others then
      answer := case sqlstate when 'ZZ000' then 'ok' else sqlstate end;
    end;
    others := others || answer;
    other_keys := other_keys || other_key;
  end loop;
  if policy is not null then
    begin
      select * into e from jobs.explain_unique('k', args, policy, 'q', meta, at);
      again := 'ok';
      again_key := e.unique_key;
      again_policy := e.policy;
    exception when others then again := sqlstate;
    end;
  end if;
end $$"#;

impl Probe {
    fn of(row: &Row) -> Probe {
        Probe {
            options: row.get("options"),
            explained: row.get("explained"),
            detail: row.get("detail"),
            others: row.get("others"),
            key: row.get("key"),
            other_keys: row.get("other_keys"),
            policy: row.get("policy"),
            again: row.get("again"),
            again_key: row.get("again_key"),
            again_policy: row.get("again_policy"),
            beyond_native: row.get("beyond_native"),
        }
    }

    fn is_accepted(&self) -> bool {
        self.explained == "ok"
    }

    /// What is wrong with the answers, if anything is.
    fn fault(&self) -> Option<&'static str> {
        let accepted = self.is_accepted();
        let faults = [
            (!accepted && self.explained != "22023", "neither accepted nor refused with 22023"),
            (
                !accepted && self.detail.as_deref().unwrap_or_default().is_empty(),
                "refused without the rule",
            ),
            (
                self.others.len() != 4 || self.others.iter().any(|other| *other != self.explained),
                "not every way in answers the same",
            ),
            (self.other_keys.iter().any(|key| *key != self.key), "another key than was shown"),
            (
                self.key.is_some() != self.policy.is_some(),
                "a key without a policy, or a policy without a key",
            ),
            (self.key.as_ref().is_some_and(|key| key.len() != 64), "no key"),
            (
                self.policy.is_some()
                    && self.beyond_native
                    && self.again.as_deref() != Some("22023"),
                "a policy that the native form has no words for is read as another one",
            ),
            (
                self.policy.is_some()
                    && !self.beyond_native
                    && (self.again.as_deref() != Some("ok")
                        || self.again_key != self.key
                        || self.again_policy != self.policy),
                "the policy that is shown is not the one that was asked for",
            ),
        ];
        faults.into_iter().find_map(|(wrong, fault)| wrong.then_some(fault))
    }
}

async fn probe(db: &Client, options: &[String]) -> Vec<Probe> {
    let rows = db
        .query(
            "select o as options, explained, detail, others, key, other_keys, policy::text, again, again_key, again_policy::text,
                    coalesce(policy->'by_meta' = 'true' or policy ?| '{args_required,args_optional,meta_optional}' or policy ? 'final_conflict', false) as beyond_native
               from unnest($1::text[]) with ordinality u(o, n), lateral probe(o::jsonb) order by n",
            &[&options],
        )
        .await
        .unwrap_or_else(|error| panic!("{error:?}"));
    rows.iter().map(Probe::of).collect()
}

#[tokio::test]
async fn any_options_are_accepted_or_refused_and_what_is_accepted_is_shown_as_it_is() {
    let (_cluster, db) = quiet("fuzz").await;
    run(&db, PROBE).await;
    let options = ACCEPTED.map(String::from);
    for probe in probe(&db, &options).await {
        assert!(probe.is_accepted() && probe.key.is_some(), "{probe:#?}");
        assert_eq!(probe.fault(), None, "{probe:#?}");
    }
    let mut rng = rng();
    let (mut accepted, mut refused, mut beyond, mut not_unique) = (0, 0, 0, 0);
    for _ in 0..40 {
        let mut options = Vec::new();
        for _ in 0..250 {
            let mut value = match rng.random_range(0..5) {
                0 => any_options(&mut rng, 3),
                _ => Json::read(ACCEPTED.choose(&mut rng).unwrap()),
            };
            for _ in 0..rng.random_range(0..4) {
                mutate(&mut value, &mut rng);
            }
            options.push(value.write());
        }
        for probe in probe(&db, &options).await {
            assert_eq!(probe.fault(), None, "{probe:#?}");
            match (probe.is_accepted(), &probe.policy) {
                (false, _) => refused += 1,
                (true, None) => not_unique += 1,
                (true, Some(_)) if probe.beyond_native => beyond += 1,
                (true, Some(_)) => accepted += 1,
            }
        }
    }
    println!(
        "{accepted} accepted, {beyond} beyond the native form, {not_unique} not unique, {refused} refused"
    );
    assert!(accepted > 1000 && beyond > 100 && not_unique > 10 && refused > 2000);
    let row = row_of(
        &db,
        "select (select count(*) from jobs.job) + (select count(*) from jobs.unique_claim)",
    )
    .await;
    assert_eq!(row.get::<_, i64>(0), 0, "each was rolled back");
}

#[tokio::test]
async fn options_that_are_deep_or_large_are_refused_or_read() {
    let (_cluster, db) = quiet("deep").await;
    run(&db, PROBE).await;
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let nested = |depth: usize| format!("{}1{}", "{\"a\": ".repeat(depth), "}".repeat(depth));
    let long =
        |count: usize| (0..count).map(|n| format!("\"p{n}\"")).collect::<Vec<_>>().join(", ");
    let mut options = Vec::new();
    for depth in [10, 127, 128, 129, 1000, 5000] {
        options.push(deep(depth));
        options.push(nested(depth));
        options.push(format!(r#"{{"by_args": {}}}"#, deep(depth)));
        options.push(format!(r#"{{"by_args": true, "on_conflict": {}}}"#, nested(depth)));
        options.push(format!(r#"{{"oban": {{"period": {}}}}}"#, deep(depth)));
        options.push(format!(r#"{{"ojs": {{"period": {}}}}}"#, nested(depth)));
        options.push(format!(r#"{{"by_kind": true, "x": {}}}"#, nested(depth)));
    }
    for probe in probe(&db, &options).await {
        assert_eq!(probe.fault(), None, "{:?}", &probe.options[..probe.options.len().min(80)]);
        assert!(!probe.is_accepted());
    }
    let large = [
        format!(r#"{{"by_args": [{}, "a"]}}"#, long(20_000)),
        format!(r#"{{"key": "{}"}}"#, "x".repeat(1_000_000)),
        format!(r#"{{"by_meta": ["{}", "t"]}}"#, "a.".repeat(50_000) + "a"),
        format!(r#"{{"by_state": [{}"running"]}}"#, r#""running", "#.repeat(20_000)),
    ];
    for probe in probe(&db, &large).await {
        assert_eq!(probe.fault(), None, "{:?}", &probe.options[..80]);
        assert!(probe.is_accepted());
    }
    for (name, value) in
        [("by_args", "x".repeat(1_000_000)), ("x".repeat(1_000_000).as_str(), "y".into())]
    {
        let probes = probe(&db, &[format!(r#"{{"{name}": "{value}"}}"#)]).await;
        assert_eq!((probes[0].fault(), probes[0].is_accepted()), (None, false));
    }
}

#[test]
fn control_every_fault_is_found() {
    let good = Probe {
        options: "{}".into(),
        explained: "ok".into(),
        detail: None,
        others: vec!["ok".into(); 4],
        key: Some("0".repeat(64)),
        other_keys: vec![Some("0".repeat(64)); 4],
        policy: Some("p".into()),
        again: Some("ok".into()),
        again_key: Some("0".repeat(64)),
        again_policy: Some("p".into()),
        beyond_native: false,
    };
    assert_eq!(good.fault(), None);
    let refused = Probe {
        explained: "22023".into(),
        detail: Some("The rule.".into()),
        others: vec!["22023".into(); 4],
        key: None,
        other_keys: vec![None; 4],
        policy: None,
        again: None,
        again_key: None,
        again_policy: None,
        ..good.clone()
    };
    assert_eq!(refused.fault(), None);
    type Doctor = fn(&mut Probe);
    let doctored: [(Probe, Doctor); 10] = [
        (refused.clone(), |probe| {
            probe.explained = "XX000".into();
            probe.others = vec!["XX000".into(); 4];
        }),
        (refused.clone(), |probe| {
            probe.explained = "22004".into();
            probe.others = vec!["22004".into(); 4];
        }),
        (refused.clone(), |probe| probe.detail = Some(String::new())),
        (refused.clone(), |probe| probe.others[2] = "ok".into()),
        (good.clone(), |probe| probe.others[0] = "23505".into()),
        (good.clone(), |probe| probe.other_keys[3] = None),
        (good.clone(), |probe| probe.policy = None),
        (good.clone(), |probe| probe.again_policy = Some("q".into())),
        (good.clone(), |probe| probe.again = Some("22023".into())),
        (good.clone(), |probe| probe.beyond_native = true),
    ];
    for (probe, doctor) in doctored {
        let mut wrong = probe;
        doctor(&mut wrong);
        assert!(wrong.fault().is_some(), "{wrong:#?}");
    }
}

/// Names that differ in every Unicode form.
const NAMES: [&str; 12] =
    ["", "a", "b", "A", "a.b", "é", "e", "Å", "\u{1e69}", "가", "\u{1f600}", "\\\""];
const CHARS: [&str; 14] = [
    "a", "e", "s", "K", "\u{212a}", "é", "\u{301}", "\u{323}", "\u{307}", "\u{fb01}", "\u{1100}",
    "\u{1161}", "\"", "\\",
];

/// A number as digits and an exponent; those of which doubles are not enough are among them.
fn any_number(rng: &mut StdRng) -> Json {
    let mantissa = match rng.random_range(0..4) {
        0 => rng.random_range(-3..4).to_string(),
        1 => rng.random_range(-1000..1000).to_string(),
        2 => (9_007_199_254_740_990_i64 + rng.random_range(0..6)).to_string(),
        _ => rng.random::<i64>().to_string(),
    };
    let exponent = match rng.random_range(0..4) {
        0 | 1 => 0,
        2 => rng.random_range(-3..4),
        _ => rng.random_range(-330..330),
    };
    Json::Word(format!("{mantissa}e{exponent}"))
}

fn any_value(rng: &mut StdRng, depth: u32) -> Json {
    let text = |rng: &mut StdRng| {
        (0..rng.random_range(0..4)).map(|_| *CHARS.choose(rng).unwrap()).collect::<String>()
    };
    match rng.random_range(0..if depth == 0 { 4 } else { 8 }) {
        0 => Json::Word(["null", "true", "false"].choose(rng).unwrap().to_string()),
        1 | 2 => any_number(rng),
        3 => Json::Text(text(rng)),
        4 | 5 => {
            Json::List((0..rng.random_range(0..4)).map(|_| any_value(rng, depth - 1)).collect())
        }
        _ => {
            let count = rng.random_range(0..4);
            let names = NAMES.choose_multiple(rng, count).collect::<Vec<_>>();
            let member = |name: &&str| (name.to_string(), any_value(rng, depth - 1));
            Json::Object(names.into_iter().map(member).collect())
        }
    }
}

/// A value in other words: members in another order, numbers with other digits and exponents.
fn respelled(value: &Json, rng: &mut StdRng) -> Json {
    match value {
        Json::Word(word) => match word.split_once('e') {
            Some((mantissa, exponent)) if mantissa.parse::<i64>().is_ok() => {
                let exponent: i32 = exponent.parse().unwrap();
                let zeros = if mantissa == "0" { 0 } else { rng.random_range(0..4) };
                Json::Word(match rng.random_range(0..3) {
                    0 => format!("{mantissa}{}e{}", "0".repeat(zeros), exponent - zeros as i32),
                    1 => format!("{mantissa}.{}E{exponent:+}", "0".repeat(zeros + 1)),
                    _ => {
                        let (sign, digits) = match mantissa.strip_prefix('-') {
                            Some(digits) => ("-", digits),
                            None => ("", mantissa),
                        };
                        format!("{sign}0.{digits}e{}", exponent + digits.len() as i32)
                    }
                })
            }
            _ => value.clone(),
        },
        Json::Text(_) => value.clone(),
        Json::List(elements) => {
            Json::List(elements.iter().map(|element| respelled(element, rng)).collect())
        }
        Json::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(name, value)| (name.clone(), respelled(value, rng))).collect();
            members.shuffle(rng);
            Json::Object(members)
        }
    }
}

/// A change of one thing, most often a small one.
fn changed(value: &Json, rng: &mut StdRng) -> Json {
    let mut changed = value.clone();
    let new = any_value(rng, 1);
    let (left, right) = (rng.random_range(0..8), rng.random_range(0..8));
    let char = CHARS.choose(rng).unwrap();
    let name = NAMES.choose(rng).unwrap();
    match changed.any_place(rng) {
        Json::List(elements) if elements.len() > 1 && left % 2 == 0 => {
            let count = elements.len();
            elements.swap(left % count, right % count);
        }
        Json::List(elements) => elements.push(new),
        Json::Object(members) if !members.is_empty() && left % 2 == 0 => {
            members.remove(right % members.len());
        }
        Json::Object(members) => members.push((name.to_string(), new)),
        Json::Text(text) => text.push_str(char),
        Json::Word(word) => match word.split_once('e').map(|(m, e)| (m.parse::<i64>(), e)) {
            Some((Ok(mantissa), exponent)) => {
                *word = format!("{}e{exponent}", mantissa.wrapping_add(1));
            }
            _ => changed = new,
        },
    }
    changed
}

/// The server's own equality of jsonb is the judge, after the server's own normalisation of text.
#[tokio::test]
async fn args_have_one_key_exactly_if_they_are_one_value() {
    let (_cluster, db) = quiet("keys").await;
    let mut rng = rng();
    let (mut same, mut different) = (0, 0);
    for _ in 0..20 {
        let mut pairs: [Vec<String>; 2] = Default::default();
        for _ in 0..250 {
            let value = any_value(&mut rng, 4);
            let other = match rng.random_range(0..3) {
                0 => respelled(&value, &mut rng),
                1 => changed(&value, &mut rng),
                _ => respelled(&changed(&value, &mut rng), &mut rng),
            };
            pairs[0].push(value.write());
            pairs[1].push(other.write());
        }
        let rows = db
            .query(
                "select a, b, normalize(a, NFC)::jsonb = normalize(b, NFC)::jsonb,
                        array(select distinct jobs.unique_key('k', spelled::jsonb, '{\"by_args\": true}') from unnest(array[a, normalize(a, NFC), normalize(a, NFD)]) spelled),
                        array(select distinct jobs.unique_key('k', spelled::jsonb, '{\"by_args\": true}') from unnest(array[b, normalize(b, NFC), normalize(b, NFD)]) spelled)
                   from unnest($1::text[], $2::text[]) u(a, b)",
                &[&pairs[0], &pairs[1]],
            )
            .await
            .unwrap_or_else(|error| panic!("{error:?}"));
        for row in rows {
            let (a, b): (&str, &str) = (row.get(0), row.get(1));
            let equal: bool = row.get(2);
            let (keys_a, keys_b): (Vec<String>, Vec<String>) = (row.get(3), row.get(4));
            assert_eq!((keys_a.len(), keys_b.len()), (1, 1), "in every form: {a} and {b}");
            assert_eq!(keys_a == keys_b, equal, "{a} and {b}");
            if equal {
                same += 1;
            } else {
                different += 1;
            }
        }
    }
    println!("{same} pairs of one value, {different} of two");
    assert!(same > 1000 && different > 1000);
}
