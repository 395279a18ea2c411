//! The extension itself, as the catalog has it.

use pgrx::pg_sys::Oid;

use super::spi::{plans, rows};

rows! {
    #[derive(Clone, Copy)]
    pub struct Extension {
        pub oid: Oid,
        pub owner: Oid,
    }
}

/// `None` if the database does not have it.
pub fn find() -> Option<Extension> {
    FIND.row(&[])
}

pub fn database() -> String {
    DATABASE.value(&[]).expect("it has a name")
}

/// The settings that were made of this database or of the role of this session, and what each is by
/// the server's configuration: the last that its files say, or else the built-in default. Those of
/// other modules, and what is logged, stay: who set them means this session, too. A transaction's
/// own are none.
pub fn settings_of_database() -> Vec<(String, String)> {
    SETTINGS.list(&[], |rows, row| Some((rows.get(row, "name")?, rows.get(row, "setting")?)))
}

plans! {
    FIND() of_catalogs =
        "SELECT e.oid, e.extowner AS owner FROM pg_catalog.pg_extension e WHERE e.extname = 'jobs'";
    SETTINGS() of_catalogs =
        "SELECT s.name,
                COALESCE((SELECT f.setting FROM pg_catalog.pg_file_settings f
                           WHERE lower(f.name) = lower(s.name) AND f.error IS NULL ORDER BY f.seqno DESC LIMIT 1), s.boot_val) AS setting
           FROM pg_catalog.pg_settings s
          WHERE s.source IN ('global', 'database', 'user', 'database user') AND s.context IN ('user', 'superuser')
            AND strpos(s.name, '.') = 0 AND NOT starts_with(s.name, 'log_')
            AND s.name NOT IN ('transaction_isolation', 'transaction_read_only', 'transaction_deferrable', 'client_encoding')";
    DATABASE() of_catalogs = "SELECT current_database()::text";
}
