//! Who may do what: the statements that grant and revoke. Roles and objects cannot be parameters of
//! these, so their text is made here, of names that the catalog has quoted.

use pgrx::pg_sys::{Datum, Oid};

use super::spi::{Plan, plans, rows, run_text, text, texts};
use super::types::*;
use crate::pg::role::as_role;

rows! {
    /// A role, and its name as it stands in statements.
    pub struct Role {
        pub oid: Oid,
        /// Its name, quoted where necessary.
        pub name: String,
    }
}

/// `None`: there is no such role.
pub fn role(name: &str) -> Option<Role> {
    ROLE.row(&[text(name)])
}

pub fn roles() -> Vec<String> {
    ROLES.values(&[])
}

/// Lets a role call these functions and procedures, whatever their parameters.
pub fn grant_functions(role: &Role, names: &str) {
    grant_each(role, &FUNCTIONS, names);
}

/// Lets a role call every function and procedure but these.
pub fn grant_functions_but(role: &Role, names: &str) {
    grant_each(role, &OTHER_FUNCTIONS, names);
}

fn grant_each(role: &Role, which: &Plan, names: &str) {
    let names: Vec<&str> = names.split(' ').collect();
    for function in which.values::<String>(&[texts(&names)]) {
        let name = &role.name;
        run_text(&format!("GRANT EXECUTE ON ROUTINE {function} TO {name}"));
    }
}

/// Waits until no other session is at it: two that change the rights to one object at the same time
/// end in an internal error of Postgres' own. The lock is only in the way of a VACUUM of this small
/// table.
pub fn one_at_a_time() {
    run_text("LOCK TABLE jobs.kind IN SHARE UPDATE EXCLUSIVE MODE");
}

/// Lets a role see the schema, without which nothing else is of use, and declare things of its
/// types.
pub fn grant_schema(role: &Role) {
    run_text(&format!("GRANT USAGE ON SCHEMA jobs TO {}", role.name));
    for of in TYPES.values::<String>(&[]) {
        run_text(&format!("GRANT USAGE ON TYPE {of} TO {}", role.name));
    }
}

/// Lets a role read every view.
pub fn grant_views(role: &Role) {
    for view in VIEWS.values::<String>(&[]) {
        run_text(&format!("GRANT SELECT ON {view} TO {}", role.name));
    }
}

/// Lets a role read which cells there are and where queues live.
pub fn grant_map(role: &Role) {
    run_text(&format!("GRANT SELECT ON jobs.cells, jobs.placements TO {}", role.name));
}

/// Lets a role see what jobs carry, in the views too.
pub fn grant_payload(role: &Role) {
    run_text(&format!("GRANT SELECT ON jobs.job TO {}", role.name));
}

/// Takes everything away from a role, and what it has passed on. What another role granted has to
/// be revoked in the name of that role: REVOKE leaves it alone otherwise.
pub fn revoke(role: &Role) {
    let grants = GRANTS.list(&[Some(Datum::from(role.oid))], |rows, row| {
        let what: String = rows.get(row, "what")?;
        Some((rows.get(row, "grantor")?, what))
    });
    for (grantor, what) in grants {
        as_role(grantor, || run_text(&format!("REVOKE ALL ON {what} FROM {} CASCADE", role.name)));
    }
}

/// How many rights a role has. Granting adds to them, and revoking takes away.
pub fn rights(role: &Role) -> Option<i64> {
    RIGHTS.value(&[Some(Datum::from(role.oid))])
}

fn select_functions(which: &str) -> String {
    format!(
        "SELECT p.oid::pg_catalog.regprocedure::text FROM pg_catalog.pg_proc p
          WHERE p.pronamespace = 'jobs'::pg_catalog.regnamespace AND p.proname {which} ORDER BY 1"
    )
}

fn select_rights(what: &str) -> String {
    format!(
        "SELECT {what} FROM (SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || c.oid::pg_catalog.regclass::text AS what, a.acl, c.relowner AS owner
           FROM pg_catalog.pg_class c,
                LATERAL (SELECT c.relacl AS acl
                         UNION ALL SELECT t.attacl FROM pg_catalog.pg_attribute t WHERE t.attrelid = c.oid AND NOT t.attisdropped) a
          WHERE c.relnamespace = 'jobs'::pg_catalog.regnamespace
         UNION ALL
         SELECT 'ROUTINE ' || p.oid::pg_catalog.regprocedure::text, p.proacl, p.proowner
           FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'jobs'::pg_catalog.regnamespace
         UNION ALL
         SELECT 'TYPE ' || t.oid::pg_catalog.regtype::text, t.typacl, t.typowner
           FROM pg_catalog.pg_type t WHERE t.typnamespace = 'jobs'::pg_catalog.regnamespace
         UNION ALL
         SELECT 'SCHEMA jobs', n.nspacl, n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname = 'jobs') o,
        LATERAL pg_catalog.aclexplode(o.acl) e
  WHERE e.grantee = $1 AND e.grantee <> o.owner"
    )
}

plans! {
    ROLE(TEXT) =
        "SELECT r.oid, pg_catalog.quote_ident(r.rolname) AS name FROM pg_catalog.pg_roles r WHERE r.rolname = $1";
    ROLES() = "SELECT r.rolname::text FROM pg_catalog.pg_roles r";
    FUNCTIONS(TEXTS) => select_functions("= ANY ($1)");
    OTHER_FUNCTIONS(TEXTS) => select_functions("<> ALL ($1)");
    VIEWS() =
        "SELECT c.oid::pg_catalog.regclass::text FROM pg_catalog.pg_class c
          WHERE c.relnamespace = 'jobs'::pg_catalog.regnamespace AND c.relkind = 'v' ORDER BY 1";
    // Those of states and of results; tables have theirs, too.
    TYPES() =
        "SELECT t.oid::pg_catalog.regtype::text FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
          WHERE t.typnamespace = 'jobs'::pg_catalog.regnamespace AND (t.typtype = 'e' OR c.relkind = 'c') ORDER BY 1";
    // Column privileges go with those of the table. An owner's own rights stay.
    GRANTS(OID) =
        "{select_rights} ORDER BY 3, 2, 1",
        select_rights = select_rights("DISTINCT e.grantor, o.what, o.what = 'SCHEMA jobs'");
    RIGHTS(OID) => select_rights("count(*)");
}
