//! The state of a node, and its changes by updates.

use weft_core::Time;
use weft_core::hash::HashKey;
use weft_core::table::Insert;
use weft_engine::state::{Bound, StateMismatch, StateStore};
use weft_ir::text::parse_program;

/// A program with a table.
fn table(realisation: &str, rows_max: u64) -> String {
    format!(
        "chain \"c\"\nrequest\nresponse\ntable \"e\" \"t\" as {realisation} max {rows_max} evict reject\n\
         key \"k\" I64 = 0\ncolumn \"n\" I64 = 0\nvar \"e\" \"v\" I64 word 0 start 5\n"
    )
}

fn bind(store: &mut StateStore, text: &str, is_published: bool) -> Result<Bound, StateMismatch> {
    let mut staged = store.stage();
    let (_, bound) = staged.bind(parse_program(text).unwrap_or_else(|e| panic!("{e}")))?;
    if is_published {
        store.commit(staged);
    }
    Ok(bound)
}

/// An update that a taken port refuses would have changed the limits of tables that run, or lost their rows.
#[test]
fn unpublished_update_changes_nothing() {
    let mut store = StateStore::new(1, HashKey::from_seed(1));
    let first = bind(&mut store, &table("striped", 10), true).expect("it is new").for_worker(0);
    assert!(matches!(first.tables[0].insert_int(7, Time(0)), Insert::New(_)));
    first.scalars.set_word(0, 9);
    bind(&mut store, &table("striped", 5), false).expect("it fits");
    bind(&mut store, "chain \"other\"\nrequest\nresponse\n", false).expect("it has no state");
    assert_eq!(first.tables[0].max_rows(), 10);
    let again = bind(&mut store, &table("striped", 5), true).expect("it fits").for_worker(0);
    assert_eq!((again.tables[0].len(), again.tables[0].max_rows()), (1, 5));
    assert_eq!(again.scalars.word(0), 9);
}

/// Rows would vanish where a table is kept in another way.
#[test]
fn lossy_realisation_is_refused() {
    let ways = ["striped", "locked", "per_worker", "replicated"];
    for (from, held) in ways.iter().enumerate() {
        for (to, wanted) in ways.iter().enumerate() {
            let mut store = StateStore::new(2, HashKey::from_seed(1));
            bind(&mut store, &table(held, 10), true).expect("it is new");
            let outcome = bind(&mut store, &table(wanted, 10), true);
            let fits = from == to
                || matches!((*held, *wanted), ("striped" | "locked" | "replicated", "striped" | "locked"));
            assert_eq!(outcome.is_ok(), fits, "from {held} to {wanted}");
        }
    }
}

/// If it failed, a returning element would find the state of an earlier one with its name; and removed elements would
/// fill the memory.
#[test]
fn unknown_state_is_dropped() {
    let mut store = StateStore::new(1, HashKey::from_seed(1));
    let first = bind(&mut store, &table("striped", 10), true).expect("it is new").for_worker(0);
    assert!(matches!(first.tables[0].insert_int(7, Time(0)), Insert::New(_)));
    first.scalars.set_word(0, 9);
    bind(&mut store, "chain \"c\"\nrequest\nresponse\n", true).expect("it has no state");
    assert_eq!(std::sync::Arc::strong_count(&first.tables[0]), 1, "the store still holds the table");
    let back = bind(&mut store, &table("striped", 10), true).expect("it is new").for_worker(0);
    assert!(back.tables[0].is_empty());
    assert_eq!(back.scalars.word(0), 5, "its start");
}

/// If it failed, chains that name one table would each have their own, and a tenant's limit would apply once per chain.
#[test]
fn shared_table_is_one_for_all_chains() {
    let mut store = StateStore::new(1, HashKey::from_seed(1));
    let text =
        |chain: &str| table("striped", 10).replace("chain \"c\"", chain).replace("table \"e\"", "table \"\"");
    let mut staged = store.stage();
    let [first, second] = ["chain \"c\"", "chain \"d\""].map(|chain| {
        let program = parse_program(&text(chain)).unwrap_or_else(|e| panic!("{e}"));
        staged.bind(program).expect("it is new").1.for_worker(0)
    });
    store.commit(staged);
    assert!(matches!(first.tables[0].insert_int(7, Time(0)), Insert::New(_)));
    assert_eq!(second.tables[0].len(), 1);
}

/// With a new secret per version, code would look for old rows in the wrong slots.
#[test]
fn update_finds_rows_under_any_secret() {
    for seed in 0..4 {
        let hash = HashKey::from_seed(seed);
        let mut store = StateStore::new(2, hash);
        let first = bind(&mut store, &table("striped", 20_000), true).expect("it is new").for_worker(0);
        for key in 0..10_000 {
            assert!(matches!(first.tables[0].insert_int(key, Time(0)), Insert::New(_)));
        }
        let text = table("striped", 15_000).replace("var", "column \"m\" I64 = 4\nvar")
            + "table \"e\" \"u\" as striped max 20000 evict reject\nkey \"k\" I64 = 0\ncolumn \"n\" I64 = 0\n";
        let second = bind(&mut store, &text, true).expect("it fits").for_worker(1);
        assert!((0..10_000).all(|key| second.tables[0].find_int(key, Time(0)).is_some()));
        // Code makes one hash for both.
        assert!(second.tables.iter().all(|table| table.hash_key() == hash));
    }
}
