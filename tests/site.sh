# The documentation as a site, and every link and anchor of it. tests/suites.sh sources this file.
#
# Links are looked at where a reader follows them: in the HTML of the site that ./dev docs makes.
# README.md and the documents beside it are in it, too. Nothing is asked for over the network: of a
# link that leads out only the form counts.

# FILTER is a part of what is checked: pages, links, controls.
suite_site() {
  local dir=$TMP/site
  rm -rf "$dir"
  mkdir -m 755 "$dir"
  if ! need_mdbook || ! need_linkchecker; then
    check site "mdbook and LinkChecker can be installed" false
    return
  fi
  if [[ pages == *"$1"* ]]; then check site "docs/SUMMARY.md has every page once" site_has_every_page docs; fi
  if [[ links == *"$1"* ]]; then
    check site "the site is built without a word of complaint" site_silent build_site "$dir/site"
    check site "its links and anchors are right" site_links "$dir/site"
  fi
  if [[ controls == *"$1"* ]]; then site_controls "$dir"; fi
}

# The packages of the link checker, in an environment of their own, made once for each version of
# their list. With Debian's Python, since user postgres must be able to run it: as root it would
# become somebody who cannot read the site.
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

# The links of all pages of a site (404.html means the root of a web server), or of those named, as
# far as they lead to files. Pages that they lead to are not followed: each is in the list itself.
# A copy of the configuration is read, because the checkout may be out of reach.
site_links() { # SITE [PAGE]..
  local log=$TMP/site/links.log pages=("${@:2}")
  pages=("${pages[@]/#/$1/}")
  [[ ${#pages[@]} -gt 0 ]] || mapfile -t pages < <(find "$1" -name '*.html' ! -name 404.html)
  cp tests/site/linkchecker.ini "$TMP/site/"
  if as_pg "$STATE/linkchecker/bin/linkchecker" -f "$TMP/site/linkchecker.ini" --no-robots --no-status --recursion-level 1 \
    --check-extern --ignore-url '^(https?|mailto):' "${pages[@]}" >"$log" 2>&1; then return; fi
  cat "$log"
  return 1
}

# What is wrong is planted in a copy of the repository, and found by its name.
site_controls() { # DIRECTORY
  local copy=$1/control found=$1/control.links
  mkdir "$copy"
  checkout_files | tar -x -C "$copy"
  echo '# Lost' >"$copy/docs/lost.md"
  check site "control: a page that is not in SUMMARY.md is found" site_finds lost.md site_has_every_page "$copy/docs"
  rm "$copy/docs/lost.md"
  site_plant "$copy/docs/SUMMARY.md" '- [Lost](lost.md)'
  check site "control: a page that is not there is found" site_finds lost.md site_copy_builds "$copy"
  cp docs/SUMMARY.md "$copy/docs/"
  site_plant "$copy/docs/concepts.md" 'a <b>tag'
  check site "control: a tag that is not closed is found" site_finds 'unclosed HTML tag' site_copy_builds "$copy"
  cp docs/concepts.md "$copy/docs/"

  site_plant "$copy/docs/concepts.md" '[1](lost-page.md) [2](../examples/lost-file.rs) [3](worker-in-sql.md#lost-there) [4](#lost-here)'
  site_plant "$copy/README.md" '[5](docs/worker-in-sql.md#lost-from-readme)'
  check site "a site with wrong links is built all the same" site_copy_builds "$copy"
  check site "control: its links are refused" refuses site_links "$copy.site" index.html docs/concepts.html >"$found"
  check site "control: a link to a page that is not there" grep -q "Error.*lost-page.html" "$found"
  check site "control: a link to a file that is not there" grep -q "Error.*lost-file.rs" "$found"
  check site "control: an anchor of another page" grep -q "Anchor .lost-there" "$found"
  check site "control: an anchor of the same page" grep -q "Anchor .lost-here" "$found"
  check site "control: an anchor in README.md" grep -q "Anchor .lost-from-readme" "$found"
  check site "control: and nothing else" grep -q " 3 warnings found. 2 errors found" "$found"
}

site_plant() { printf '\n%s\n' "$2" >>"$1"; } # DOCUMENT LINE

site_finds() { # REGEX COMMAND..
  local log=$TMP/site/control.log
  refuses "${@:2}" >"$log" && grep -q "$1" "$log"
}

site_copy_builds() { # COPY
  (cd "$1" && site_silent build_site "$1.site")
}
