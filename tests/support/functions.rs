//! The functions that there are, by the catalog.

use tokio_postgres::Client;

/// A function or procedure.
#[derive(Clone)]
pub struct Function {
    /// without its schema
    pub name: String,
    /// it is called, not selected
    pub is_procedure: bool,
    /// those that go in
    pub parameters: Vec<Parameter>,
}

/// One that goes in.
#[derive(Clone)]
pub struct Parameter {
    /// as in a call with names
    pub name: String,
    /// its type, as SQL has it
    pub type_name: String,
    /// it can be left out
    pub has_default: bool,
}

/// Every function and procedure of the schema jobs.
pub async fn functions(db: &Client) -> Vec<Function> {
    let sql = "select p.proname::text, p.prokind = 'p', coalesce(p.proargnames[1:p.pronargs], '{}'),
                      array(select format_type(t.oid, null) from unnest(p.proargtypes) with ordinality t(oid, n) order by t.n), p.pronargdefaults::integer
                 from pg_proc p where p.pronamespace = 'jobs'::regnamespace order by 1";
    let rows = db.query(sql, &[]).await.unwrap();
    rows.iter()
        .map(|row| {
            let (names, types): (Vec<String>, Vec<String>) = (row.get(2), row.get(3));
            let required = names.len() - row.get::<_, i32>(4) as usize;
            let parameter = |(n, (name, type_name))| Parameter {
                name,
                type_name,
                has_default: n >= required,
            };
            Function {
                name: row.get(0),
                is_procedure: row.get(1),
                parameters: names
                    .into_iter()
                    .zip(types)
                    .enumerate()
                    .map(parameter)
                    .collect(),
            }
        })
        .collect()
}
