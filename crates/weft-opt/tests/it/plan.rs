//! The chosen order of programs.

use weft_core::abi::Counters;
use weft_ir::program::ChainProgram;
use weft_lang::diagnostic::{RenderOptions, render_all};
use weft_opt::effects::{ChainEffects, effects};
use weft_opt::lower::{LowerOptions, lower_with_lines};
use weft_opt::plan::{
    Context, Copied, Figures, Input, Level, LicensedBy, Pair, ParallelStep, Plan, choose, crossings,
    dead_fields, drop_dead_fields, headers, overlaps, pairs, steps,
};

use crate::swap::Inline;

/// Elements that clash or do not. `heavy` is the expensive one below.
const ELEMENTS: &str = "CREATE TYPE cart_msg FROM PROTO 'cart.proto';
CREATE LISTENER front ON tcp '127.0.0.1:7070';
CREATE CLUSTER cart TO '127.0.0.1:7101';
CREATE ELEMENT heavy ON rpc (payload BYTES) AS ON REQUEST SET payload = payload || payload; END;
CREATE ELEMENT guard ON rpc (user TEXT) AS
  ON REQUEST IF user = 'mallory' THEN ABORT PERMISSION_DENIED 'no'; END IF;
END;
CREATE ELEMENT sized ON rpc (payload BYTES) AS
  ON REQUEST IF length(payload) > 9 THEN ABORT PERMISSION_DENIED 'no'; END IF;
END;
CREATE ELEMENT count ON rpc AS VAR n U64 MERGE SUM; ON REQUEST ADD n, 1; END;
CREATE ELEMENT opened ON rpc (payload BYTES) AS ON REQUEST SET payload = gunzip(payload); END;
CREATE ELEMENT small ON rpc (payload BYTES) AS ON REQUEST SET payload = gzip(payload); END;
CREATE ELEMENT unpacked ON rpc (payload BYTES) AS ON REQUEST SET payload = unlz4(payload); END;
CREATE ELEMENT labels ON rpc AS ON REQUEST SET header['x-a'] = 'a'; END;
CREATE ELEMENT looks ON rpc AS ON REQUEST IF header['x-a'] = 'b' THEN REDIRECT TO 'cart'; END IF; END;
CREATE ELEMENT copies ON rpc AS ON REQUEST MIRROR TO 'cart'; END;
CREATE ELEMENT keyed ON rpc (user TEXT, object_id I64) AS
  TABLE t (user TEXT(64), object_id I64, n I64, PRIMARY KEY (user, object_id)) MAX 10 ROWS FILLED BY CONTROLLER;
  ON REQUEST SELECT * FROM input JOIN t USING (user, object_id) ELSE ABORT PERMISSION_DENIED 'no';
END;
CREATE ELEMENT light ON rpc (quantity I32) AS ON REQUEST SET quantity = 7; END;
";

/// The figures of an element: nanoseconds, and ended calls per thousand.
type MeasuredElement = (&'static str, u64, u64);

const MEASURED: [MeasuredElement; 4] =
    [("heavy", 1000, 0), ("guard", 10, 500), ("sized", 10, 500), ("count", 5, 0)];

/// A chain with its analysis.
struct AnalyzedChain {
    chain: ChainProgram,
    effects: ChainEffects,
    context: Context,
    pairs: Vec<Pair>,
    level: Level,
}

fn known(stages: &str) -> AnalyzedChain {
    let program =
        format!("{ELEMENTS}CREATE CHAIN t ON front -> cart METHOD 'shop.Cart/Add' AS {stages} END;");
    let (network, diagnostics, sources) = weft_lang::check("t.weft", &mut Inline(program));
    let show = |diagnostics: &[_]| render_all(diagnostics, &sources, RenderOptions::default());
    let network = network.unwrap_or_else(|| panic!("{}", show(&diagnostics)));
    let chain = lower_with_lines(&network, 0, &LowerOptions { workers: 1 }, &sources)
        .unwrap_or_else(|diagnostics| panic!("{}", show(&diagnostics)));
    let effects = effects(&chain);
    let context = Context::new(&network.chains[0]);
    let pairs = pairs(&chain, &effects, &context);
    let level = Level::from(network.chains[0].equivalence);
    AnalyzedChain { chain, effects, context, pairs, level }
}

/// The plan of a chain with these stages and options, and its order in words.
fn plan(stages: &str, counted: &[MeasuredElement], running: Option<&[usize]>) -> (String, Plan) {
    let AnalyzedChain { chain, effects, context, pairs, level } = known(stages);
    let counters = |(name, ns, ended): &MeasuredElement| {
        let counters = Counters {
            seen: 100_000,
            aborted: ended * 100,
            sampled: 1000,
            sampled_ns: ns * 1000,
            ..Counters::default()
        };
        ((*name).to_owned(), counters)
    };
    let counted: Vec<(String, Counters)> = counted.iter().map(counters).collect();
    let figures = Figures::estimated(&chain, &effects).with_counted(&chain, &effects, &counted);
    let crossings = crossings(&chain, &effects, &context, level);
    let plan = choose(&Input {
        context: &context,
        pairs: &pairs,
        crossings: &crossings,
        level,
        figures: &figures,
        running,
    });
    let names: Vec<&str> = plan.order.iter().map(|at| &*chain.elements[*at].name).collect();
    (names.join(" "), plan)
}

#[track_caller]
fn check(stages: &str, expected: &str) {
    let (order, plan) = plan(stages, &MEASURED, None);
    assert_eq!(order, expected, "{plan:?}");
}

#[test]
fn refusing_element_precedes_costly_one() {
    // The main purpose: no work on calls that are refused.
    check("heavy -> guard;", "guard heavy");
    let (_, plan) = plan("heavy -> guard;", &MEASURED, None);
    assert_eq!((plan.written_ns, plan.planned_ns), (1010.0, 510.0));
    assert!(plan.is_exact && plan.is_reordered() && plan.licences.is_empty());
}

#[test]
fn rule_keeps_order_at_any_cost() {
    // `sized` reads what `heavy` writes; a counter would count other calls.
    check("heavy -> sized;", "heavy sized");
    check("count -> guard;", "count guard");
    check("heavy -> count -> guard;", "count guard heavy");
    check("heavy -> guard; ORDER heavy BEFORE guard;", "heavy guard");
    // At `strict`, `guard` may run out of the scratch that `heavy` uses, and fail with another status.
    check("heavy -> guard; EQUIVALENCE strict;", "heavy guard");
    check("heavy -> guard; POSITION heavy FIRST;", "heavy guard");
    check("light -> heavy -> guard; POSITION guard LAST;", "light heavy guard");
}

#[test]
fn chain_licence_overrides_rule() {
    // Declarations that the order does not matter, or which element matters more, override the rules, and are reported.
    let (order, plan) = plan("{heavy, sized};", &MEASURED, None);
    assert_eq!(order, "sized heavy");
    assert_eq!(plan.licences[0].by, LicensedBy::Braces);
    let (order, plan) = self::plan("heavy -> sized; PRIORITY sized > heavy;", &MEASURED, None);
    assert_eq!(order, "sized heavy");
    assert_eq!(plan.licences[0].by, LicensedBy::Priority);
    // It allows one direction only.
    check("heavy -> sized; PRIORITY heavy > sized;", "heavy sized");
    check("{heavy, sized}; ORDER heavy BEFORE sized;", "heavy sized");
    // An allowed swap needs no licence.
    let (_, plan) = self::plan("{heavy, guard};", &MEASURED, None);
    assert!(plan.is_reordered() && plan.licences.is_empty());
}

#[test]
fn inverse_pair_is_crossed_as_one() {
    // An ACL behind packing and unpacking of a field would pay for calls that it refuses.
    let counted = [("small", 1000, 0), ("opened", 500, 0), ("sized", 10, 500), ("heavy", 1000, 0)];
    let check = |stages: &str, expected: &str| {
        let (order, plan) = plan(stages, &counted, None);
        assert_eq!(order, expected, "{plan:?}");
    };
    check("small -> opened -> sized;", "sized small opened");
    // Between the two it would see another value.
    check("small -> sized -> opened;", "small sized opened");
    // No inverse pair: another function, another field in between, another order.
    check("opened -> small -> sized;", "opened small sized");
    check("small -> heavy -> opened -> sized;", "small heavy opened sized");
    check("small -> unpacked -> sized;", "small unpacked sized");
    // An element that may fail before it may be in the way for another reason.
    check("small -> opened -> sized; ORDER opened BEFORE sized;", "small opened sized");
    // An element with traces stays after one that may run out of room: the promise of `strict`.
    check("small -> opened -> sized; EQUIVALENCE strict;", "small opened sized");
}

#[test]
fn chain_sides_keep_their_order() {
    // An element at the server cannot see a call before one at the client.
    check("heavy AT CLIENT -> guard AT SERVER;", "heavy guard");
    check("heavy AT CLIENT -> guard;", "guard heavy");
    check("heavy AT SERVER -> guard AT SERVER;", "guard heavy");
}

#[test]
fn small_gain_keeps_order() {
    // A reordering for a nanosecond confuses people, and streams stay on the old order.
    let even = [("heavy", 10, 0), ("guard", 10, 10)];
    let (order, plan) = plan("heavy -> guard;", &even, None);
    assert_eq!(order, "heavy guard");
    assert_eq!(plan.not_taken.map(|other| other.order), Some(vec![1, 0]));
    // The running order is also replaced only for a gain.
    let (order, _) = self::plan("heavy -> guard;", &even, Some(&[1, 0]));
    assert_eq!(order, "guard heavy");
    // But not if a new rule forbids the running order.
    let (order, _) = self::plan("heavy -> guard; ORDER heavy BEFORE guard;", &even, Some(&[1, 0]));
    assert_eq!(order, "heavy guard");
}

#[test]
fn enough_samples_replace_estimates() {
    // An order from three calls would be random.
    let (order, plan) = plan("guard -> light;", &[("guard", 500, 0), ("light", 1, 0)], None);
    assert_eq!((order.as_str(), plan.is_reordered()), ("guard light", false));
    let (order, _) = self::plan("light -> guard;", &[("light", 900, 0), ("guard", 1, 900)], None);
    assert_eq!(order, "guard light");
    // Without measurements, an element that may refuse counts as refusing one call in ten.
    let (order, plan) = self::plan("heavy -> guard;", &[], None);
    assert!(plan.written_ns > plan.planned_ns || order == "heavy guard", "{plan:?}");
}

#[test]
fn dead_field_is_dropped() {
    // Invisible work is useless; a field that is read, or sent, is not dead.
    let dead = |stages: &str| {
        let AnalyzedChain { mut chain, effects, context, level, .. } = known(stages);
        let order: Vec<usize> = (0..chain.elements.len()).collect();
        let dead = dead_fields(&chain, &effects, &context, level, &order);
        let sets = |chain: &ChainProgram| {
            let function =
                chain.elements[0].handlers.request.as_ref().expect("the element has a request handler");
            function.blocks.iter().map(|block| block.insts.len()).sum::<usize>()
        };
        let before = sets(&chain);
        drop_dead_fields(&mut chain, &dead);
        weft_ir::verify::verify_program(&chain).expect("the chain is well-formed");
        assert_eq!(sets(&chain) < before, dead.iter().any(|dead| dead.element == 0), "{stages}");
        dead.iter().map(|dead| (dead.element, dead.by)).collect::<Vec<_>>()
    };
    assert_eq!(dead("light -> guard -> light AS again;"), [(0, 2)]);
    assert_eq!(dead("light -> heavy;"), []);
    assert_eq!(dead("light -> copies -> light AS again;"), []);
    assert_eq!(dead("heavy -> sized;"), []);
    assert_eq!(dead("light -> light AS again; FAIL OPEN;"), []);
}

/// How the second of two elements could run in parallel with the first.
#[track_caller]
fn overlap(stages: &str, expected: Result<ParallelStep, &str>) {
    let AnalyzedChain { chain, effects, pairs, level, .. } = known(stages);
    let found = overlaps(&chain, &effects, &pairs, level, &[0, 1]).remove(0);
    assert_eq!(found.verdict, expected.map_err(ToOwned::to_owned), "{stages}");
    let steps = steps(&[found], &[0, 1]);
    assert_eq!(steps.len(), if expected.is_ok() { 1 } else { 2 });
}

#[test]
fn parallel_steps_show_their_price() {
    // Without a copy one element would see the other's bytes; without a merge, state of a refused call would stay.
    let shared = ParallelStep::default();
    overlap("guard -> light;", Ok(shared));
    overlap("heavy -> sized;", Err("heavy writes payload, which sized reads"));
    overlap("sized -> heavy;", Ok(ParallelStep { copy: Copied::All, ..shared }));
    overlap("looks -> labels;", Ok(ParallelStep { copy: Copied::Headers, ..shared }));
    // The second overwrites the field; the first only adds to it.
    overlap("light -> light AS again;", Ok(ParallelStep { copy: Copied::All, ..shared }));
    overlap("heavy -> heavy AS again;", Err("both write payload"));
    overlap("guard -> count;", Ok(ParallelStep { commits_at_merge: true, ..shared }));
    overlap("count -> guard;", Ok(shared));
    // A copy that was sent cannot be undone.
    overlap("guard -> copies;", Err("guard may end the call, and copies copies the tuple"));
    overlap("copies -> heavy;", Ok(ParallelStep { copy: Copied::All, ..shared }));
    overlap("heavy -> copies;", Err("copies copies the tuple, which heavy changes"));
    overlap("light -> guard; ORDER light BEFORE guard;", Err("the chain says that light comes before guard"));
}

#[test]
fn header_has_only_fields_read_later() {
    // With a missing field the next node must parse the message; an extra one is sent in vain.
    let AnalyzedChain { chain, effects, .. } = known("guard -> light -> keyed -> looks;");
    let told = |order: &[usize]| -> Vec<(Vec<String>, u64)> {
        let name = |at: usize| chain.request.inputs[at].name.clone();
        let header = |header: weft_opt::plan::Header| {
            let names = header.fields.iter().map(|field| name(usize::from(field.input.0))).collect();
            (names, header.bytes())
        };
        headers(&chain, &effects, order).into_iter().map(header).collect()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let own = 10;
    let header = "header[x-a]";
    assert_eq!(
        told(&[0, 1, 2, 3]),
        [
            (names(&["user", "object_id", header]), own + 2 + 8 + 2),
            (names(&["user", "object_id", header]), own + 2 + 8 + 2),
            (names(&["user", "object_id", header]), own + 2 + 8 + 2),
            (names(&[header]), own + 2),
            (names(&[]), own),
        ]
    );
    // A field that is written after the cut before it is read need not be sent.
    let AnalyzedChain { chain, effects, .. } = known("labels -> looks;");
    assert_eq!(headers(&chain, &effects, &[0, 1])[0].bytes(), own);
    assert_eq!(headers(&chain, &effects, &[0, 1])[1].bytes(), own + 2);
}

#[test]
fn length_failure_allows_swap() {
    // gzip fails only if its result is too long; after it, an ACL would waste work on calls that it refuses.
    check("small -> guard;", "guard small");
    check("small -> guard; EQUIVALENCE strict;", "small guard");
    // Damaged input is refused with a status of its own.
    check("opened -> guard;", "opened guard");
    // Its declared cost is used.
    let (_, plan) = plan("small -> guard;", &[], None);
    assert!(plan.written_ns > 5_000.0 && plan.is_reordered(), "{plan:?}");
}
