# `just` lists these; each is also a plain cargo command.

default:
    @just --list

# What CI runs.
ci:
    .ci/run

# Format and lints.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# All tests.
test:
    cargo test --workspace

# The SQL suites.
slt *PATHS="sql-tests/slt":
    cargo run --bin spate -- slt {{PATHS}}

# The queries of TPC-H, kept up to date, against batch.
tpch:
    cargo test --workspace --test suites tpch::

# The queries of Nexmark, kept up to date, against batch.
nexmark:
    cargo test --workspace --test suites nexmark::

# Random queries under random changes, against batch; SPATE_SEEDS=FIRST..LAST chooses them.
random:
    cargo test --workspace --test suites random::

# The tour of the README.
tour:
    cargo run --release --bin spate -- -f examples/tour.sql

# Benchmarks; a release build.
bench *ARGS:
    cargo run --release -p spate-benches --bin foundation -- {{ARGS}}

# The Nexmark queries against DataFusion in batch, with their answers checked; a release build.
bench-nexmark *ARGS:
    cargo run --release --bin spate -- bench nexmark {{ARGS}}

# 10,000 random queries, then the whole test suite again and again, until it fails or N rounds are over.
soak N="20":
    SPATE_SEEDS=10000 cargo test --workspace --test suites random::
    for i in $(seq {{N}}); do echo "round $i"; cargo test --workspace --quiet || exit 1; done

# Licences and advisories of dependencies (needs cargo-deny).
deny:
    cargo deny check
