# What a report says about where its figures come from. Sourced.

machine_line() {
  echo "machine: $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(awk '/^MemTotal/ { printf "%.0f GB", $2 / 1048576 }' /proc/meminfo), $(uname -sr)"
}

# Words may be written meanwhile: they change no figure.
commit_of() { # CHECKOUT
  local top dirty=''
  top=$(git -C "$1" rev-parse --show-toplevel 2>/dev/null) || { echo unknown; return; }
  git -C "$top" diff --quiet HEAD -- . ':!*.md' ':!*.svg' || dirty=-dirty
  echo "$(git -C "$top" rev-parse --short=12 HEAD)$dirty"
}
