# Builds and installs the extension as makefiles of PGXS do, for any major that Cargo.toml has a
# feature for:
#   make && make install && make installcheck          PG_CONFIG and DESTDIR count as they do there
# It needs cargo, clang and the server's headers. ./dev, which installs what is missing, calls it
# too.

PG_CONFIG ?= pg_config
PG_MAJOR := $(shell $(PG_CONFIG) --version 2>/dev/null | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
ifeq ($(PG_MAJOR)$(filter clean deb-tools,$(MAKECMDGOALS)),)
$(error $(PG_CONFIG) does not run: set PG_CONFIG to that of the server)
endif
LIBRARIES := $(shell $(PG_CONFIG) --pkglibdir)
SCRIPTS := $(shell $(PG_CONFIG) --sharedir)/extension
BINARIES := $(shell $(PG_CONFIG) --bindir)
PG_REGRESS := $(dir $(shell $(PG_CONFIG) --pgxs))../test/regress/pg_regress
TARGET := $(or $(CARGO_TARGET_DIR),target)
VERSION := $(shell ops/packaging/version)
# Install scripts of what was released, and upgrade scripts; before the first release there are
# none.
RELEASED := $(wildcard sql/install/jobs--*.sql sql/jobs--*--*.sql)
# A profile of Cargo.toml, and features of it beside that of the major.
PROFILE ?= release
FEATURES ?=
LIBRARY := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/libjobs.so
# The server whose headers are read. Another path has cargo build everything anew.
export PGRX_PG_CONFIG_PATH ?= $(shell command -v $(PG_CONFIG))

# The tree of files to be installed, one for each pg_config. If it is given, it is taken as it is.
ifeq ($(origin STAGED),undefined)
STAGED := $(TARGET)/package/$(subst /,_,$(LIBRARIES))
BUILT := $(STAGED)/built
TOOLS := $(TARGET)/package/tools
else
TOOLS := $(STAGED)
endif

# tests/pg_regress, each in a database of its own; a test is what is expected of it, too.
CHECKED := $(TARGET)/installcheck
REGRESS ?= $(basename $(notdir $(wildcard tests/pg_regress/sql/*.sql)))

.PHONY: all package install uninstall installcheck deb deb-tools tools clean

all package: $(BUILT)

# Whoever installs needs no cargo, and root builds nothing, if `make` ran before. The install script
# is the parts of sql/ in their order; earlier versions can be installed as well, to upgrade from.
$(TARGET)/package/%/built: Makefile Cargo.toml Cargo.lock jobs.control $(shell find src core sql -type f)
	cargo build --lib --profile $(PROFILE) --no-default-features --features 'pg$(PG_MAJOR) $(FEATURES)'
	rm -rf '$(STAGED)'
	mkdir -p '$(STAGED)$(LIBRARIES)' '$(STAGED)$(SCRIPTS)'
	cp '$(LIBRARY)' '$(STAGED)$(LIBRARIES)/jobs.so'
	sed 's/@CARGO_VERSION@/$(VERSION)/' jobs.control >'$(STAGED)$(SCRIPTS)/jobs.control'
	cat sql/[0-9]*.sql >'$(STAGED)$(SCRIPTS)/jobs--$(VERSION).sql'
	$(if $(RELEASED),cp $(RELEASED) '$(STAGED)$(SCRIPTS)/')
	touch $@

install: $(BUILT)
	mkdir -p '$(DESTDIR)$(LIBRARIES)' '$(DESTDIR)$(SCRIPTS)'
	install -m 755 '$(STAGED)$(LIBRARIES)/jobs.so' '$(DESTDIR)$(LIBRARIES)/'
	install -m 644 '$(STAGED)$(SCRIPTS)/jobs.control' $(STAGED)$(SCRIPTS)/jobs--*.sql '$(DESTDIR)$(SCRIPTS)/'

uninstall:
	rm -f '$(DESTDIR)$(LIBRARIES)/jobs.so' '$(DESTDIR)$(SCRIPTS)/jobs.control' $(DESTDIR)$(SCRIPTS)/jobs--*.sql

# Against the server that PGHOST, PGPORT and PGUSER name; what it must be like is in
# CONTRIBUTING.md.
installcheck:
	@rm -rf '$(CHECKED)'; mkdir -p '$(CHECKED)/expected'; cp -r tests/pg_regress/sql '$(CHECKED)'
	@failed=; for test in $(REGRESS); do \
	  cp "tests/pg_regress/sql/$$test.sql" "$(CHECKED)/expected/$$test.out"; \
	  if '$(PG_REGRESS)' --bindir='$(BINARIES)' --inputdir='$(CHECKED)' --outputdir='$(CHECKED)' --launcher=tests/pg_regress/psql.sh \
	    --dbname="regress_$$test" --load-extension=jobs $$test >'$(CHECKED)/log' 2>&1; \
	  then echo "ok      $$test"; else echo "FAILED  $$test"; failed="$$failed $$test"; \
	    cat '$(CHECKED)/regression.diffs' || cat '$(CHECKED)/log'; fi; \
	  '$(BINARIES)/dropdb' --if-exists "regress_$$test"; \
	done; if [ "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

# A Debian package of the tree, in the directory dist.
deb: $(BUILT)
	ops/packaging/deb '$(STAGED)' $(PG_MAJOR) dist

# The program `pgjobs`, which is of no major.
deb-tools: $(if $(BUILT),tools)
	ops/packaging/deb '$(TOOLS)' tools dist

tools:
	ops/packaging/program '$(TOOLS)/usr/bin'

clean:
	rm -rf '$(TARGET)/package' '$(TARGET)/installcheck' dist
	cargo clean
