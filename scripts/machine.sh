# What a report says about where its figures come from. Sourced.

machine_line() {
  echo "machine: $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(awk '/^MemTotal/ { printf "%.0f GB", $2 / 1048576 }' /proc/meminfo), $(uname -sr)"
}

commit_of() { # CHECKOUT
  git -C "$1" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown
}
