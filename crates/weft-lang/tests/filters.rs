//! The HIR of valid filters: policies, keys and positions.

use weft_core::filter::{
    BACKOFF_FIRST_DEFAULT, Backoff, Budget, Circuit, Congestion, CongestionLaw, ErrorRatio, Hedge,
    INTERVAL_MAX, JITTER_PERCENT_DEFAULT, KEYS_DEFAULT, KeyId, OPEN_FOR_DEFAULT, Order, Outlier, Policies,
    Rate, Reliability, Retry, StatusSet, Timeouts, Transport, WAITING_DEFAULT,
};
use weft_core::{Interval, Status};
use weft_lang::diagnostic::{RenderOptions, render_all};
use weft_lang::hir::{Chain, ColumnLocation, Network, StmtKind};

mod support;
use support::Texts;

/// The network of a program without diagnostics: these filters and stages, on a method that does not stream.
fn network(filters: &str, stages: &str) -> Network {
    let text = format!(
        "CREATE TYPE shop FROM PROTO 'shop.proto';
CREATE LISTENER frontend ON tcp '127.0.0.1:6000';
CREATE CLUSTER cart TO '127.0.0.1:6001', 'unix:/run/cart.sock';
CREATE ELEMENT pass ON rpc AS ON OPEN FORWARD; END;
{filters}
CREATE CHAIN c ON frontend -> cart METHOD 'shop.Cart/Get' AS {stages} END;"
    );
    let (network, diagnostics, sources) =
        weft_lang::check("main.weft", &mut Texts::of(&[("main.weft".to_owned(), text)]));
    let rendered = render_all(&diagnostics, &sources, RenderOptions::default());
    assert!(diagnostics.is_empty(), "{rendered}");
    network.unwrap_or_else(|| panic!("refused:\n{rendered}"))
}

/// The policies of filter `f` with one policy, and columns `coupon TEXT?` and `user TEXT`.
fn policies(text: &str) -> Policies {
    let columns = if text.contains("user") { " (user TEXT)" } else { "" };
    let network = network(&format!("CREATE FILTER f ON rpc{columns} AS {text} END;"), "f;");
    network.chains[0].filters[0].policies.clone()
}

fn chain(network: &Network) -> &Chain {
    &network.chains[0]
}

fn set(statuses: &[Status]) -> StatusSet {
    statuses.iter().copied().collect()
}

#[test]
fn policies_match_source() {
    // If this fails, a number is stored in the wrong field, and calls wait or fail.
    let ms = Interval::from_millis;
    assert_eq!(
        policies("TIMEOUT PROPAGATE LESS '2 ms'; TIMEOUT TRY '50 ms'; TIMEOUT TOTAL '1 s';").timeouts,
        Timeouts { total: Some(ms(1000)), per_try: Some(ms(50)), propagate: Some(ms(2)) }
    );
    let retry = policies(
        "RETRY UP TO 3 WHEN status IN (UNAVAILABLE, ABORTED) BACKOFF EXPONENTIAL '5 ms' TO '250 ms'
           JITTER 10 PERCENT BUDGET 20 PERCENT AND 3 PER SECOND;",
    );
    let backoff = Backoff { first: ms(5), max: ms(250), jitter_percent: 10.0 };
    let budget = Some(Budget { percent: 20.0, per_second_min: 3.0 });
    let when = set(&[Status::Unavailable, Status::Aborted]);
    assert_eq!(retry.retry, Some(Retry { retries_max: 3, when, backoff, budget }));
    let hedge = policies("HEDGE AFTER '7 ms' UP TO 2 WHEN status = INTERNAL BUDGET 5 PERCENT;").hedge;
    let budget = Some(Budget { percent: 5.0, per_second_min: 1.0 });
    let not_final = set(&[Status::Internal]);
    assert_eq!(hedge, Some(Hedge { after: ms(7), extra_max: 2, not_final, budget }));
    let rate = policies("RATE 10 PER SECOND BURST 4 PER user QUEUE 5 WAIT '6 ms' KEYS 7;").rate;
    assert_eq!(
        rate,
        Some(Rate {
            per_second: 10.0,
            burst: 4.0,
            key: Some(KeyId(0)),
            keys_max: 7,
            waiting_max: 5,
            wait_max: ms(6)
        })
    );
    assert_eq!(
        policies("ORDER PER user, method QUEUE 8 KEYS 9;").order,
        Some(Order { key: KeyId(0), keys_max: 9, waiting_max: 8 })
    );
    let circuit = policies(
        "CIRCUIT AFTER 5 ERRORS RATIO 50 PERCENT OF 20 IN '10 s' IN FLIGHT 9 WHEN status = INTERNAL
           OPEN FOR '3 s' PROBES 2;",
    );
    assert_eq!(
        circuit.circuit,
        Some(Circuit {
            errors_max: Some(5),
            ratio: Some(ErrorRatio { percent: 50.0, calls_min: 20, window: ms(10_000) }),
            in_flight_max: Some(9),
            errors: set(&[Status::Internal]),
            open_for: ms(3000),
            probes: 2,
        })
    );
    let outlier =
        policies("OUTLIER AFTER 5 ERRORS WHEN status = INTERNAL EJECT FOR '30 s' UP TO 40 PERCENT;");
    let errors = set(&[Status::Internal]);
    assert_eq!(
        outlier.outlier,
        Some(Outlier { errors_max: 5, errors, eject_for: ms(30_000), ejected_max_percent: 40.0 })
    );
    let aimd = policies("CONGESTION AIMD FROM 3 MIN 2 MAX 9 LATENCY '10 ms' BACKOFF 0.5;").congestion;
    let law = CongestionLaw::Aimd { latency_max: Some(ms(10)), backoff: 0.5 };
    let errors = StatusSet::server_errors();
    assert_eq!(aimd, Some(Congestion { law, start: 3, min: 2, max: 9, errors }));
    let once =
        policies("RELIABILITY AT LEAST ONCE ID user WINDOW '1 min' CALLS 10 ANSWERS UP TO '2 KB';").once;
    let kept =
        Reliability::AtLeastOnce { id: KeyId(0), window: ms(60_000), calls_max: 10, answer_bytes_max: 2048 };
    assert_eq!(once, Some(kept));
    assert_eq!(policies("RELIABILITY AT MOST ONCE;").once, Some(Reliability::AtMostOnce));
    assert_eq!(policies("OVER UNIX;").over, Some(Transport::Unix));
}

#[test]
fn unwritten_policies_get_defaults() {
    // The book documents the defaults; users rely on them.
    let retry = policies("RETRY UP TO 1 WHEN status = UNAVAILABLE;").retry.expect("it has one");
    assert_eq!((retry.backoff.first, retry.budget), (BACKOFF_FIRST_DEFAULT, None));
    assert_eq!(retry.backoff.jitter_percent, JITTER_PERCENT_DEFAULT);
    let constant =
        policies("RETRY UP TO 1 WHEN status = UNAVAILABLE BACKOFF CONSTANT '9 ms' JITTER 0 PERCENT;");
    let wait = Interval::from_millis(9);
    let backoff = constant.retry.map(|retry| retry.backoff);
    assert_eq!(backoff, Some(Backoff { first: wait, max: wait, jitter_percent: 0.0 }));
    let pace = policies("PACE TO 0.5 PER SECOND;").rate.expect("it has one");
    assert_eq!((pace.burst, pace.waiting_max, pace.wait_max), (1.0, WAITING_DEFAULT, INTERVAL_MAX));
    assert_eq!((pace.key, pace.keys_max), (None, KEYS_DEFAULT));
    let rate = policies("RATE 20 PER SECOND;").rate.expect("it has one");
    assert_eq!((rate.burst, rate.waiting_max), (20.0, 0));
    let waits = policies("RATE 0.1 PER SECOND WAIT '1 s';").rate.expect("it has one");
    assert_eq!((waits.burst, waits.waiting_max), (1.0, WAITING_DEFAULT));
    let circuit = policies("CIRCUIT IN FLIGHT 10;").circuit.expect("it has one");
    assert_eq!((circuit.errors_max, circuit.open_for, circuit.probes), (None, OPEN_FOR_DEFAULT, 1));
    let gradient = policies("CONGESTION GRADIENT MAX 10;").congestion.expect("it has one");
    assert_eq!((gradient.start, gradient.min), (10, 1), "the start is within the bounds");
    assert_eq!(policies("TIMEOUT PROPAGATE;").timeouts.propagate, Some(Interval(0)));
}

#[test]
fn conditions_fold_per_status() {
    // If this fails, calls that took effect are retried.
    let when = |condition: &str| {
        let retry = policies(&format!("RETRY UP TO 1 WHEN {condition};")).retry;
        retry.expect("it has one").when
    };
    let both = set(&[Status::Unavailable, Status::Internal]);
    assert_eq!(when("status = UNAVAILABLE OR status = INTERNAL"), both);
    assert_eq!(when("status IN (UNAVAILABLE, INTERNAL, OK) AND status <> OK"), both);
    assert_eq!(when("NOT status NOT IN (UNAVAILABLE, INTERNAL)"), both);
    assert_eq!(when("status = 14"), set(&[Status::Unavailable]));
    assert_eq!(when("status <> OK").iter().count(), 16);
}

#[test]
fn parameters_decide_at_the_stage() {
    // If this fails, a stage gets another stage's parameters.
    let text =
        "CREATE FILTER f (n INT = 2, d INTERVAL = '50 ms', first STATUS = ABORTED, p F64 = 5) ON rpc AS
  TIMEOUT TRY d * 2;
  RETRY UP TO n + 1 WHEN status = first BUDGET p PERCENT AND float(n) PER SECOND;
END;";
    let network = network(text, "f -> f (n = 4, d = '1 s', first = INTERNAL, p = 7.5) AS g;");
    let [f, g] = &chain(&network).filters[..] else { panic!("two") };
    let read = |policies: &Policies| {
        let retry = policies.retry.expect("it has one");
        let budget = retry.budget.expect("it has one");
        (policies.timeouts.per_try, retry.retries_max, retry.when, budget.percent, budget.per_second_min)
    };
    let first = (Some(Interval::from_millis(100)), 3, set(&[Status::Aborted]), 5.0, 2.0);
    assert_eq!((read(&f.policies), f.name.as_str()), (first, "f"));
    let second = (Some(Interval::from_secs(2)), 5, set(&[Status::Internal]), 7.5, 4.0);
    assert_eq!((read(&g.policies), g.name.as_str(), g.filter.as_str()), (second, "g", "f"));
}

#[test]
fn key_element_precedes_its_filter() {
    // The engine reads the keys from the elements before the filter.
    let text = "CREATE FILTER by_user (salt TEXT = 'x') ON rpc (user TEXT, id I64) AS
  ORDER PER user || salt, id;
  RELIABILITY AT LEAST ONCE ID COALESCE(header['x-id'], user) WINDOW '1 s';
END;
CREATE FILTER by_peer ON rpc AS RATE 1 PER SECOND PER peer, method; END;
CREATE FILTER plain ON rpc AS TIMEOUT TOTAL '1 s'; END;";
    let network = network(
        text,
        "pass -> by_user (user := req.item.sku, id := req.object_id) MANDATORY -> pass AS last
           -> by_peer -> plain;",
    );
    let chain = chain(&network);
    let names: Vec<&str> = chain.instances.iter().map(|instance| instance.name.as_str()).collect();
    assert_eq!(names, ["pass", "by_user", "last", "by_peer"]);
    let places: Vec<(usize, bool)> =
        chain.filters.iter().map(|filter| (filter.at, filter.has_keys)).collect();
    assert_eq!(places, [(2, true), (4, true), (4, false)]);
    let by_user = &chain.instances[1];
    assert_eq!(by_user.bindings[0].place, ColumnLocation::Body(vec!["item".to_owned(), "sku".to_owned()]));
    assert!(by_user.mandatory && !by_user.fail_open);
    let keys = |at: usize| {
        let handlers = &network.elements[chain.instances[at].element].handlers;
        let handler = handlers.iter().next().expect("it has one");
        let key = |stmt: &weft_lang::hir::Stmt| match &stmt.kind {
            StmtKind::Key { key, parts } => (key.0, parts.len()),
            other => panic!("{other:?} is no key"),
        };
        (handlers.request.is_some(), handler.body.iter().map(key).collect::<Vec<_>>())
    };
    let written = "in the order in which the policies are written, an id with its method";
    assert_eq!(keys(1), (true, vec![(0, 2), (1, 2)]), "{written}");
    assert_eq!(keys(3), (false, vec![(0, 2)]), "known when the call opens");
    let policies = &chain.filters[0].policies;
    assert_eq!(policies.order.map(|order| order.key), Some(KeyId(0)));
    assert!(matches!(policies.once, Some(Reliability::AtLeastOnce { id: KeyId(1), .. })));
}

#[test]
fn header_keys_are_known_at_open() {
    // If this fails, a stream waits for its first message before it opens.
    let text = "CREATE FILTER by ON rpc (tenant TEXT?) AS
  RATE 1 PER SECOND PER COALESCE(tenant, peer);
END;
CREATE FILTER sized ON rpc (tenant TEXT?) AS RATE 1 PER SECOND PER COALESCE(tenant, ''), size; END;";
    let network = network(
        text,
        "by (tenant := coupon) -> by (tenant := header.tenant) AS early -> by (tenant := peer) AS peers
           -> sized (tenant := header.tenant);",
    );
    let instances = chain(&network).instances.iter();
    let is_early = |instance: &weft_lang::hir::Instance| {
        let handlers = &network.elements[instance.element].handlers;
        assert_ne!(handlers.open.is_some(), handlers.request.is_some());
        handlers.open.is_some()
    };
    assert_eq!(instances.map(is_early).collect::<Vec<_>>(), [false, true, true, false]);
}

#[test]
fn per_try_elements_are_marked() {
    // Without PER TRY, an element that must not repeat is rejected after a RETRY.
    let text = "CREATE FILTER retry ON rpc AS RETRY UP TO 1 WHEN status = UNAVAILABLE; END;";
    let network = network(text, "pass -> retry -> pass AS again PER TRY;");
    let marks: Vec<bool> = chain(&network).instances.iter().map(|instance| instance.per_try).collect();
    assert_eq!(marks, [false, true]);
}

#[test]
fn filters_replace_and_drop() {
    // Updates of a running network are written like this.
    let text = "CREATE FILTER f ON rpc AS TIMEOUT TOTAL '1 s'; END;
CREATE OR REPLACE FILTER f ON rpc AS TIMEOUT TOTAL '2 s'; END;
CREATE FILTER g ON rpc AS OVER tcp; END;
DROP FILTER g;
CREATE ELEMENT g ON rpc AS ON OPEN FORWARD; END;";
    let network = network(text, "f -> g;");
    assert_eq!(chain(&network).filters[0].policies.timeouts.total, Some(Interval::from_secs(2)));
    assert_eq!(chain(&network).instances[0].name, "g");
}
