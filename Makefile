# Builds and installs the extension as makefiles of PGXS do, for any major that Cargo.toml has a feature for:
#   make && make install && make installcheck          PG_CONFIG and DESTDIR count as they do there
# It needs cargo and cargo-pgrx. ./dev, which installs what is missing, is for working on the extension.

PG_CONFIG ?= pg_config
PG_MAJOR := $(shell $(PG_CONFIG) --version 2>/dev/null | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
ifeq ($(PG_MAJOR)$(filter clean,$(MAKECMDGOALS)),)
$(error $(PG_CONFIG) does not run: set PG_CONFIG to that of the server)
endif
LIBRARIES := $(shell $(PG_CONFIG) --pkglibdir)
SCRIPTS := $(shell $(PG_CONFIG) --sharedir)/extension
BINARIES := $(shell $(PG_CONFIG) --bindir)
PG_REGRESS := $(dir $(shell $(PG_CONFIG) --pgxs))../test/regress/pg_regress
TARGET := $(or $(CARGO_TARGET_DIR),target)

# The tree of files to be installed, one for each pg_config. If it is given, it is taken as it is.
ifeq ($(origin STAGED),undefined)
STAGED := $(TARGET)/package/$(subst /,_,$(LIBRARIES))
BUILT := $(STAGED)/built
endif

# tests/pg_regress, each in a database of its own
REGRESS ?= $(basename $(notdir $(wildcard tests/pg_regress/sql/*.sql)))

.PHONY: all package install uninstall installcheck deb clean

all package: $(BUILT)

# Whoever installs needs no cargo, and root builds nothing, if `make` ran before.
$(TARGET)/package/%/built: Cargo.toml Cargo.lock build.rs jobs.control $(shell find src core sql -type f)
	rm -rf '$(STAGED)'
	PGRX_PG_CONFIG_PATH="$$(command -v $(PG_CONFIG))" cargo pgrx package --pg-config "$$(command -v $(PG_CONFIG))" \
	  --out-dir '$(STAGED)' --no-default-features --features pg$(PG_MAJOR)
	cp sql/install/jobs--*.sql '$(STAGED)$(SCRIPTS)/' # earlier versions, to upgrade from
	touch $@

install: $(BUILT)
	mkdir -p '$(DESTDIR)$(LIBRARIES)' '$(DESTDIR)$(SCRIPTS)'
	install -m 755 '$(STAGED)$(LIBRARIES)/jobs.so' '$(DESTDIR)$(LIBRARIES)/'
	install -m 644 '$(STAGED)$(SCRIPTS)/jobs.control' $(STAGED)$(SCRIPTS)/jobs--*.sql '$(DESTDIR)$(SCRIPTS)/'

uninstall:
	rm -f '$(DESTDIR)$(LIBRARIES)/jobs.so' '$(DESTDIR)$(SCRIPTS)/jobs.control' $(DESTDIR)$(SCRIPTS)/jobs--*.sql

# Against the server that PGHOST, PGPORT and PGUSER name; what it must be like is in CONTRIBUTING.md.
installcheck:
	@mkdir -p '$(TARGET)/installcheck'
	@failed=; for test in $(REGRESS); do \
	  if '$(PG_REGRESS)' --bindir='$(BINARIES)' --inputdir=tests/pg_regress --outputdir='$(TARGET)/installcheck' \
	    --dbname="regress_$$test" --load-extension=jobs $$test >'$(TARGET)/installcheck/log' 2>&1; \
	  then echo "ok      $$test"; else echo "FAILED  $$test"; failed="$$failed $$test"; \
	    cat '$(TARGET)/installcheck/regression.diffs' || cat '$(TARGET)/installcheck/log'; fi; \
	  '$(BINARIES)/dropdb' --if-exists "regress_$$test"; \
	done; if [ "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

# A Debian package of the tree, in the directory dist.
deb: $(BUILT)
	packaging/deb '$(STAGED)' $(PG_MAJOR) dist

clean:
	rm -rf '$(TARGET)/package' '$(TARGET)/installcheck' dist
	cargo clean
