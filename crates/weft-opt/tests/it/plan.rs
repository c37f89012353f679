//! Which order is chosen, for programs.

use weft_core::abi::Counters;
use weft_lang::diagnostic::{RenderOptions, render_all};
use weft_opt::effects::effects;
use weft_opt::lower::{LowerOptions, lower_with_lines};
use weft_opt::plan::{Context, Figures, Input, Level, LicensedBy, Plan, choose, pairs};

use crate::swap::Inline;

/// Elements that get in each other's way or not. `heavy` is what is counted as dear below.
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
CREATE ELEMENT light ON rpc (quantity I32) AS ON REQUEST SET quantity = 7; END;
";

/// What is counted of an element: nanoseconds, and calls that it ends of a thousand.
type Counted = (&'static str, u64, u64);

const MEASURED: [Counted; 4] = [("heavy", 1000, 0), ("guard", 10, 500), ("sized", 10, 500), ("count", 5, 0)];

/// The plan of a chain with these stages and options, and its order in words.
fn plan(stages: &str, counted: &[Counted], running: Option<&[usize]>) -> (String, Plan) {
    let program =
        format!("{ELEMENTS}CREATE CHAIN t ON front -> cart METHOD 'shop.Cart/Add' AS {stages} END;");
    let (network, diagnostics, sources) = weft_lang::check("t.weft", &mut Inline(program));
    let show = |diagnostics: &[_]| render_all(diagnostics, &sources, RenderOptions::default());
    let network = network.unwrap_or_else(|| panic!("{}", show(&diagnostics)));
    let chain = lower_with_lines(&network, 0, &LowerOptions { workers: 1 }, &sources)
        .unwrap_or_else(|diagnostics| panic!("{}", show(&diagnostics)));
    let effects = effects(&chain);
    let context = Context::new(&chain, &network.chains[0], &network.schema);
    let pairs = pairs(&chain, &effects, &context);
    let counters = |(name, ns, ended): &Counted| {
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
    let level = Level::from(network.chains[0].equivalence);
    let plan = choose(&Input { context: &context, pairs: &pairs, level, figures: &figures, running });
    let names: Vec<&str> = plan.order.iter().map(|at| &*chain.elements[*at].name).collect();
    (names.join(" "), plan)
}

#[track_caller]
fn check(stages: &str, expected: &str) {
    let (order, plan) = plan(stages, &MEASURED, None);
    assert_eq!(order, expected, "{plan:?}");
}

#[test]
fn what_refuses_calls_comes_before_what_is_dear() {
    // The purpose of it all: no work on calls that are refused.
    check("heavy -> guard;", "guard heavy");
    let (_, plan) = plan("heavy -> guard;", &MEASURED, None);
    assert_eq!((plan.written_ns, plan.planned_ns), (1010.0, 510.0));
    assert!(plan.is_exact && plan.is_reordered() && plan.licences.is_empty());
}

#[test]
fn a_rule_keeps_the_order_whatever_it_costs() {
    // `sized` looks at what `heavy` makes; a counter would count other calls.
    check("heavy -> sized;", "heavy sized");
    check("count -> guard;", "count guard");
    check("heavy -> count -> guard;", "count guard heavy");
    check("heavy -> guard; ORDER heavy BEFORE guard;", "heavy guard");
    // At `strict`, `guard` may find the room used up that `heavy` leaves, and fail with another status.
    check("heavy -> guard; EQUIVALENCE strict;", "heavy guard");
    check("heavy -> guard; POSITION heavy FIRST;", "heavy guard");
    check("light -> heavy -> guard; POSITION guard LAST;", "light heavy guard");
}

#[test]
fn the_words_of_a_chain_licence_what_a_rule_forbids() {
    // Who says that the order does not matter, or which of two matters more, is taken at their word, and told.
    let (order, plan) = plan("{heavy, sized};", &MEASURED, None);
    assert_eq!(order, "sized heavy");
    assert_eq!(plan.licences[0].by, LicensedBy::Braces);
    let (order, plan) = self::plan("heavy -> sized; PRIORITY sized > heavy;", &MEASURED, None);
    assert_eq!(order, "sized heavy");
    assert_eq!(plan.licences[0].by, LicensedBy::Priority);
    // It lets the one in front, not the other.
    check("heavy -> sized; PRIORITY heavy > sized;", "heavy sized");
    check("{heavy, sized}; ORDER heavy BEFORE sized;", "heavy sized");
    // What needs no licence has none.
    let (_, plan) = self::plan("{heavy, guard};", &MEASURED, None);
    assert!(plan.is_reordered() && plan.licences.is_empty());
}

#[test]
fn what_gains_too_little_stays_as_it_is() {
    // A chain that changes its order for a nanosecond makes people wonder, and streams stay behind.
    let even = [("heavy", 10, 0), ("guard", 10, 10)];
    let (order, plan) = plan("heavy -> guard;", &even, None);
    assert_eq!(order, "heavy guard");
    assert_eq!(plan.not_taken.map(|other| other.order), Some(vec![1, 0]));
    // What runs is left for a gain alone, too.
    let (order, _) = self::plan("heavy -> guard;", &even, Some(&[1, 0]));
    assert_eq!(order, "guard heavy");
    // But not where a rule has come up that forbids it.
    let (order, _) = self::plan("heavy -> guard; ORDER heavy BEFORE guard;", &even, Some(&[1, 0]));
    assert_eq!(order, "heavy guard");
}

#[test]
fn figures_are_measured_where_enough_was_seen() {
    // An order by three calls would be an order by chance.
    let (order, plan) = plan("guard -> light;", &[("guard", 500, 0), ("light", 1, 0)], None);
    assert_eq!((order.as_str(), plan.is_reordered()), ("guard light", false));
    let (order, _) = self::plan("light -> guard;", &[("light", 900, 0), ("guard", 1, 900)], None);
    assert_eq!(order, "guard light");
    // With nothing measured, an element that may refuse is taken to refuse one call in ten.
    let (order, plan) = self::plan("heavy -> guard;", &[], None);
    assert!(plan.written_ns > plan.planned_ns || order == "heavy guard", "{plan:?}");
}
