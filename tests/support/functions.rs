//! The functions that there are, by the catalog.

use tokio_postgres::Client;

/// A function or procedure.
#[derive(Clone)]
pub struct Function {
    /// The name without the schema.
    pub name: String,
    /// SQL calls a procedure with `call`, not `select`.
    pub is_procedure: bool,
    /// The input parameters.
    pub parameters: Vec<Parameter>,
}

/// One that goes in.
#[derive(Clone)]
pub struct Parameter {
    /// The name in a call with named arguments.
    pub name: String,
    /// The SQL name of the type.
    pub type_name: String,
    /// A call can omit the parameter.
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
            let parameter =
                |(n, (name, type_name))| Parameter { name, type_name, has_default: n >= required };
            Function {
                name: row.get(0),
                is_procedure: row.get(1),
                parameters: names.into_iter().zip(types).enumerate().map(parameter).collect(),
            }
        })
        .collect()
}
