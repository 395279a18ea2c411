# The documentation as a site, and every link and anchor of it. tests/suites.sh sources this file.
#
# Links are looked at where a reader follows them: in the HTML. The pages of docs/ are built once as the site that ./dev docs
# makes, and once more from a copy of the whole repository, with README.md and the other documents beside it, so that their
# links are checked the same way. Nothing is asked for over the network: of a link that leads out only the form counts.

# FILTER is a part of what is checked: pages, site, repository, controls.
suite_site() {
  local dir=$TMP/site
  rm -rf "$dir"
  mkdir -m 755 "$dir"
  if ! need_mdbook || ! need_linkchecker; then
    check site "mdbook and LinkChecker can be installed" false
    return
  fi
  if [[ pages == *"$1"* ]]; then check site "docs/SUMMARY.md has every page once" site_has_every_page docs; fi
  if [[ site == *"$1"* ]]; then
    check site "the site is built without a word of complaint" site_silent build_site "$dir/site"
    check site "its links and anchors are right" site_links "$dir/site/docs"
  fi
  if [[ repository == *"$1"* ]]; then
    site_repository "$dir/repository"
    check site "so are all documents of the repository" site_silent "$MDBOOK" build --dest-dir "$dir/repository/html" "$dir/repository"
    check site "and their links and anchors are right" site_links "$dir/repository/html"
  fi
  if [[ controls == *"$1"* ]]; then site_controls "$dir"; fi
}

# The packages of the link checker, in an environment of their own, made once for each version of their list. With Debian's
# Python, since user postgres must be able to run it: as root it would become somebody who cannot read the site.
need_linkchecker() {
  local wanted
  wanted=$(/usr/bin/python3 --version && cat tests/site/requirements.txt)
  [[ $(cat "$STATE/linkchecker/wanted" 2>/dev/null) != "$wanted" ]] || return 0
  say "Installing LinkChecker"
  rm -rf "$STATE/linkchecker"
  /usr/bin/python3 -m venv "$STATE/linkchecker" &&
    "$STATE/linkchecker/bin/pip" install -q --disable-pip-version-check -r tests/site/requirements.txt &&
    echo "$wanted" >"$STATE/linkchecker/wanted"
}

# What mdbook says beyond that it begins and where it writes to.
site_silent() { # COMMAND..
  local log=$TMP/site/build.log
  if "$@" >"$log" 2>&1 && refuses grep -qE 'WARN|ERROR' "$log"; then return; fi
  cat "$log"
  return 1
}

site_has_every_page() { # DIRECTORY
  diff --label docs <(cd "$1" && find . -name '*.md' ! -path ./SUMMARY.md | sed 's,^\./,,' | sort) \
    --label SUMMARY.md <(grep -o '](.*\.md)' "$1/SUMMARY.md" | sed 's/^](\(.*\))$/\1/' | sort)
}

# All pages of a book (404.html means the root of a web server), and what they link to outside it, as far as that is a file.
# A copy of the configuration is read, because the checkout may be out of reach.
site_links() { # BOOK
  local log=$TMP/site/links.log pages
  mapfile -t pages < <(find "$1" -name '*.html' ! -name 404.html)
  cp tests/site/linkchecker.ini "$TMP/site/"
  if as_pg "$STATE/linkchecker/bin/linkchecker" -f "$TMP/site/linkchecker.ini" --no-robots --no-status \
    --check-extern --ignore-url '^(https?|mailto):' "${pages[@]}" >"$log" 2>&1; then return; fi
  cat "$log"
  return 1
}

# The repository as the source of a book, whose pages are all its documents.
site_repository() { # DIRECTORY
  local root=$1/src page
  mkdir -p "$root"
  tar -c --exclude=./.git --exclude=./.dev --exclude=./target --exclude=./book . | tar -x -C "$root"
  sed 's/^src = .*/src = "src"/' book.toml >"$1/book.toml"
  for page in $(cd "$root" && find -- *.md docs -name '*.md' ! -name SUMMARY.md); do
    echo "- [$page]($page)"
  done >"$root/SUMMARY.md"
}

# Each is planted in a copy of docs/, and found by its name.
site_controls() { # DIRECTORY
  local copy=$1/control
  check site "control: a page that is not in SUMMARY.md is found" site_finds_lost_page "$copy"
  check site "control: a page that is not there is found" site_finds "$copy" SUMMARY.md '- [Lost](lost.md)' build lost.md
  check site "control: a tag that is not closed is found" site_finds "$copy" concepts.md 'a <b>tag' build 'unclosed HTML tag'
  check site "control: a link to a page that is not there is found" site_finds "$copy" concepts.md '[x](lost.md)' links lost.html
  check site "control: a link to a file that is not there is found" site_finds "$copy" concepts.md '[x](../examples/lost.rs)' links lost.rs
  check site "control: an anchor that is not there is found" site_finds "$copy" concepts.md '[x](workers.md#lost)' links "Anchor .lost"
  check site "control: an anchor of the same page that is not there is found" site_finds "$copy" concepts.md '[x](#lost)' links "Anchor .lost"
  check site "the copy without any of it is right" site_copy_is_right "$copy"
}

site_copy() { # DIRECTORY
  rm -rf "$1"
  mkdir -p "$1"
  cp -r book.toml docs "$1/"
}

site_copy_builds() { # DIRECTORY
  (cp -r examples monitoring "$1/" && cd "$1" && site_silent build_site "$1/site")
}

site_finds_lost_page() { # DIRECTORY
  site_copy "$1"
  echo '# Lost' >"$1/docs/lost.md"
  refuses site_has_every_page "$1/docs" | grep -q lost.md
}

site_finds() { # DIRECTORY PAGE LINE build|links REGEX
  local log=$1.log
  site_copy "$1"
  printf '\n%s\n' "$3" >>"$1/docs/$2"
  if [[ $4 == build ]]; then
    refuses site_copy_builds "$1" >"$log"
  else
    site_copy_builds "$1" && refuses site_links "$1/site/docs" >"$log"
  fi && grep -q "$5" "$log"
}

site_copy_is_right() { # DIRECTORY
  site_copy "$1"
  site_copy_builds "$1" && site_links "$1/site/docs"
}
