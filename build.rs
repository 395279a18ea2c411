//! How the library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Postgres shares the names of all libraries that it loads. Without this, whichever comes first would have its `insert_wrapper` taken
    // for ours (src/pg/lone.rs), as each extension made with pgrx has whose function is called so.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    }
}
