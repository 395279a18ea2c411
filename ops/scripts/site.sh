# ./dev docs, and the suite site: the documentation as a site. Sourced.

docs() {
  need_rust
  mkdir -p "$STATE"
  need_mdbook
  build_site "$STATE/site"
  say "The documentation is at $STATE/site/docs/index.html, README at $STATE/site/index.html"
}

# README.md and the documents beside it, docs/, and every file that they could link to, each where
# it is in the repository: so a link is the same here and there. The two parts are two books, since
# a book has one SUMMARY.md.
build_site() { # DIRECTORY, an absolute path
  local front=$1.front page
  rm -rf "$1" "$front"
  mkdir -p "$front/src"
  checkout_files --exclude=./docs | tar -x -C "$front/src"
  sed 's/^src = .*/src = "src"/' ops/book.toml >"$front/book.toml"
  for page in README.md $(ls -- *.md | grep -v '^README') .github/SECURITY.md; do echo "- [$(basename "$page" .md)]($page)"; done >"$front/src/SUMMARY.md"
  "$MDBOOK" build --dest-dir "$1" "$front" && "$MDBOOK" build --dest-dir "$1/docs" ops && rm -rf "$front"
}

# As tar, without what is built here.
checkout_files() { tar -c --exclude=./.git --exclude=./.dev --exclude=./target --exclude=./dist --exclude=./ops/book "$@" .; }
