//! What a database has of the extension, row by row, and how two of them differ.

use std::collections::BTreeMap;

use jobs_tests::{Client, rows_of, run, texts};

/// Every table and sequence of the extension with its rows as text, and the rights on all that it
/// has.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// Rows per table.
    pub tables: BTreeMap<String, Vec<String>>,
    rights: Vec<String>,
}

impl Contents {
    /// What is there now, in one snapshot.
    pub async fn of(db: &Client) -> Contents {
        let begin = "begin isolation level repeatable read read only";
        run(db, begin).await;
        let mut tables = BTreeMap::new();
        for (table, is_sequence) in dumped(db).await {
            // How many values a sequence has logged ahead is nobody's business.
            let row = if is_sequence { "row(t.last_value, t.is_called)" } else { "t" };
            let sql = format!(r#"select {row}::text collate "C" from {table} t order by 1"#);
            tables.insert(table, texts(db, &sql).await);
        }
        let rights = texts(db, RIGHTS).await;
        run(db, "commit").await;
        Contents { tables, rights }
    }

    /// What differs, a line each; rights too.
    pub fn differences(&self, other: &Contents) -> Vec<String> {
        let mut lines = self.row_differences(other);
        lines.extend(one_sided("rights", &self.rights, &other.rights));
        lines
    }

    /// What differs in rows, a line each.
    pub fn row_differences(&self, other: &Contents) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.tables.keys().eq(other.tables.keys()) {
            lines.push("not the same tables".into());
        }
        for (table, rows) in &self.tables {
            let others = other.tables.get(table).map_or(&[][..], Vec::as_slice);
            lines.extend(one_sided(table, rows, others));
        }
        lines
    }

    /// Tables that are neither as in `whole` nor empty: in a database that is being restored,
    /// a session has touched those.
    pub fn touched(&self, whole: &Contents) -> Vec<String> {
        let untouched = |table: &String, rows: &Vec<String>| {
            rows.is_empty() || rows == &whole.tables[table] || rows == &["(1,f)"]
        };
        self.tables
            .iter()
            .filter(|(table, rows)| !untouched(table, rows))
            .flat_map(|(table, rows)| one_sided(table, &whole.tables[table], rows))
            .collect()
    }

    /// Tables without rows.
    pub fn empty(&self) -> Vec<&str> {
        self.tables
            .iter()
            .filter(|(_, rows)| rows.is_empty())
            .map(|(table, _)| table.as_str())
            .collect()
    }
}

/// Lines that only one of two sorted lists has.
fn one_sided(name: &str, ours: &[String], others: &[String]) -> Vec<String> {
    let missing = ours.iter().filter(|row| !others.contains(row));
    let added = others.iter().filter(|row| !ours.contains(row));
    let mut lines: Vec<String> = missing
        .map(|row| format!("{name} lacks {row}"))
        .chain(added.map(|row| format!("{name} has {row}")))
        .collect();
    if lines.is_empty() && ours.len() != others.len() {
        lines.push(format!(
            "{name} has a row {} times less or more",
            ours.len().abs_diff(others.len())
        ));
    }
    lines
}

/// What pg_dump takes along of the extension, and whether it is a sequence.
async fn dumped(db: &Client) -> Vec<(String, bool)> {
    let sql = "select c.oid::regclass::text, c.relkind = 'S' from pg_extension e, unnest(e.extconfig) x, pg_class c
                where e.extname = 'jobs' and c.oid = x order by 1";
    let rows = rows_of(db, sql).await;
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Tables and sequences of the extension that pg_dump leaves out.
pub async fn not_dumped(db: &Client) -> Vec<String> {
    let sql = "select c.oid::regclass::text from pg_extension e
                 join pg_depend d on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid and d.deptype = 'e'
                                 and d.classid = 'pg_class'::regclass
                 join pg_class c on c.oid = d.objid
                where e.extname = 'jobs' and c.relkind in ('r', 'p', 'S', 'm') and c.oid <> all (e.extconfig)";
    texts(db, sql).await
}

// By name: object ids are others in another database. Entries are sorted, since a restore may grant
// in another order.
const RIGHTS: &str = r#"
  select object || ' ' || entry from (
    select 'schema ' || nspname, nspacl from pg_namespace where nspname = 'jobs'
    union all select oid::regprocedure::text, proacl from pg_proc where pronamespace = 'jobs'::regnamespace
    union all select oid::regclass::text, relacl from pg_class where relnamespace = 'jobs'::regnamespace
    union all select a.attrelid::regclass::text || '.' || a.attname, a.attacl
                from pg_attribute a join pg_class c on c.oid = a.attrelid where c.relnamespace = 'jobs'::regnamespace
  ) o(object, acl), lateral (select entry::text from unnest(acl) entry) e order by 1"#;
