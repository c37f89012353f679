//! Actions and verdicts of elements take effect on calls (`docs/src/concepts/effects.md`, "What a handler does").

use crate::support::*;
use weft_sim::Answer;

const REQUEST: &str =
    "request\ninput \"user\" TEXT body \"user\" written\ninput \"x\" TEXT nullable header \"x-in\" written\n";

/// One call of each kind through a chain of one element with this REQUEST handler; the four answers.
fn run(declarations: &str, handlers: &[(&str, &str)]) -> (World, Vec<Answer>) {
    let text = chain(declarations, &[&element("e", handlers)]);
    let mut world = World::new(5, Net::new().plan(Some(&text), &[CART]))
        .server(CART, |_| Behaviour::default().header("x-up", "1").trailer("x-end", "2"))
        .server(CART_3, |_| Behaviour::default().header("x-side", "1"));
    let client = world.client("front");
    let calls = ALL.map(|path| {
        let n = if path == UP || path == BOTH { 3 } else { 1 };
        let messages = (0..n).map(|nth| Message::new(item("ann", nth + 1, b"rest"))).collect();
        world.call(client, Call::stream(path, messages))
    });
    world.run();
    let answers = calls.map(|call| world.answer(call).clone()).to_vec();
    (world, answers)
}

/// A refused request would reach the server, or its client be told something else.
#[test]
fn abort_sends_status_and_headers() {
    let abort = "v0: bytes = bytes \"no \\xc3\\xa4\"\nv1: bytes = bytes \"0\"\nset_answer n0, v1\n\
        abort PERMISSION_DENIED, v0";
    for handler in ["open", "request"] {
        let (world, answers) = run("request\nresponse\nanswer \"x-left\"", &[(handler, abort)]);
        for answer in &answers {
            assert_eq!((answer.code(), answer.text()), (Some(7), "no \u{e4}"), "{handler}: {answer:?}");
            assert_eq!(field(answer.trailers(), "x-left"), Some("0"));
            assert!(answer.messages.is_empty());
        }
        assert!(world.received().iter().all(|r| r.messages.is_empty()), "{handler}");
    }
}

/// A response that an element refuses would reach the client all the same.
#[test]
fn response_abort_replaces_response() {
    let abort = "v0: bytes = bytes \"bad\"\nabort DATA_LOSS, v0";
    let (world, answers) = run("request\nresponse\nanswer \"x\"", &[("response", abort)]);
    for answer in &answers {
        assert_eq!((answer.code(), answer.text(), answer.messages.len()), (Some(15), "bad", 0));
    }
    assert_eq!(world.received().len(), 4);
}

/// DROP would leave the client waiting for ever.
#[test]
fn drop_resets_stream() {
    let (world, answers) = run("request\nresponse", &[("request", "drop")]);
    assert!(answers.iter().all(|a| matches!(a.end, Some((_, End::Reset)))), "{answers:?}");
    assert!(world.received().iter().all(|r| r.is_cancelled && r.messages.is_empty()));
}

/// A REPLY would not be a whole response.
#[test]
fn reply_replaces_the_server() {
    let reply = "v0: bytes = bytes \"cache\"\nset_reply n0, v0\nv1: int = int 9\nset_reply n1, v1\nreply";
    let declarations = "request\nresponse\nreply \"user\" TEXT\nreply \"n\" I64";
    let (_, answers) = run(declarations, &[("request", reply)]);
    for answer in &answers {
        assert_eq!(answer.code(), Some(0));
        assert_eq!(answer.messages, [Message::new(item("cache", 9, b""))]);
        assert_eq!(field(&answer.headers, "content-type"), Some("application/grpc"));
    }
}

/// A message that was kept would come back as another, or not be the whole message that came.
#[test]
fn payload_is_whole_and_can_be_reply() {
    let reply = "v0: bytes = input in0\nset_reply n0, v0\nreply";
    let declarations = "request\ninput \"payload\" BYTES body\nresponse\nreply BYTES";
    let (world, answers) = run(declarations, &[("request", reply)]);
    for answer in &answers {
        assert_eq!(answer.code(), Some(0));
        assert_eq!(answer.messages, [Message::new(item("ann", 1, b"rest"))]);
    }
    assert!(world.received().iter().all(|r| r.messages.is_empty()));
}

/// A REDIRECT would go to the route's cluster, or nowhere.
#[test]
fn redirect_selects_server() {
    for target in ["side", CART_3] {
        let (world, answers) =
            run("request\nresponse", &[("open", &format!("v0: bytes = bytes \"{target}\"\nredirect v0"))]);
        assert!(answers.iter().all(|a| a.code() == Some(0)), "{answers:?}");
        assert!(world.received().iter().all(|r| r.server == CART_3));
        assert_eq!(world.received().len(), 4);
    }
    let (_, answers) = run("request\nresponse", &[("open", "v0: bytes = bytes \"nowhere\"\nredirect v0")]);
    assert!(answers.iter().all(|a| a.code() == Some(14)), "{answers:?}");
}

/// A message that names its server by its body would go with the headers before it.
#[test]
fn message_redirect_moves_headers() {
    let body = "v0: bytes = input in0\nv1: bytes = bytes \"side\"\nredirect v1";
    let (world, answers) = run("request\ninput \"user\" TEXT body \"user\"\nresponse", &[("request", body)]);
    assert_eq!(answers[0].code(), Some(0));
    let unary = world.received().iter().find(|r| r.path() == ADD).expect("the unary call");
    assert_eq!(unary.server, CART_3);
}

/// A delayed message would leave at once, overtake another, or not leave at all.
#[test]
fn delay_holds_and_keeps_order() {
    let delay = |n: i64| format!("v0: int = int {}\ndelay v0\nforward", ms(n).0);
    for handler in ["open", "request", "response"] {
        let (world, answers) = run("request\nresponse", &[(handler, &delay(40))]);
        for (answer, path) in answers.iter().zip(ALL) {
            assert_eq!(answer.code(), Some(0));
            assert!((ms(40)..ms(60)).contains(&answer.took()), "{handler} {path}: {}", answer.took());
            let sent: Vec<_> = (1..=answer.messages.len() as u64).map(|n| item("ann", n, b"rest")).collect();
            assert!(answer.messages.iter().map(|m| &m.payload).eq(&sent), "{handler} {path}");
        }
        assert_eq!(world.received().len(), 4);
    }
    let abort = format!("v0: int = int {}\ndelay v0\nabort UNAVAILABLE", ms(30).0);
    let (_, answers) = run("request\nresponse", &[("request", &abort)]);
    assert!(answers.iter().all(|a| a.code() == Some(14) && a.took() >= ms(30)), "{answers:?}");
}

/// A copy would not arrive, or be answered to the client.
#[test]
fn mirror_copies_each_message() {
    let mirror = "v0: bytes = bytes \"side\"\nmirror v0\nforward";
    let (world, answers) = run("request\nresponse", &[("request", mirror)]);
    assert!(answers.iter().all(|a| a.code() == Some(0) && field(&a.headers, "x-up").is_some()));
    let copies: Vec<_> = world.received().iter().filter(|r| r.server == CART_3).collect();
    assert_eq!(copies.len(), 8, "one of each message");
    assert!(copies.iter().all(|r| r.messages.len() == 1 && r.is_ended));
}

/// A copy would include edits behind the MIRROR, or lack edits before it.
#[test]
fn mirror_copies_tuple_at_its_point() {
    let edits = "v0: bytes = bytes \"bob\"\nset_input in0, v0\nv1: bytes = bytes \"early\"\nset_input in1, v1\n\
        v2: bytes = bytes \"side\"\nmirror v2\n\
        v3: bytes = bytes \"eve\"\nset_input in0, v3\nv4: bytes = bytes \"late\"\nset_input in1, v4\nforward";
    let text = chain(&format!("{REQUEST}response"), &[&element("e", &[("request", edits)])]);
    let mut world = World::new(5, Net::new().plan(Some(&text), &[CART]))
        .server(CART, |_| Behaviour::default())
        .server(CART_3, |_| Behaviour::default());
    let client = world.client("front");
    world.call(client, Call::unary(ADD, item("ann", 1, b"rest")));
    world.run();
    for (server, user, header) in [(CART, "eve", "late"), (CART_3, "bob", "early")] {
        let received = world.received().iter().find(|r| r.server == server).expect("it was sent");
        assert_eq!(received.messages[0].payload, edited(user, 1), "{server}");
        assert_eq!(received.header("x-in"), Some(header), "{server}");
    }
}

/// An item with an edited user: untouched fields stay in place, and the edited one is behind them.
fn edited(user: &str, n: u64) -> Vec<u8> {
    [item("", n, b"rest"), item(user, 0, b"")].concat()
}

/// A changed field would not reach the server, or take other fields with it.
#[test]
fn set_edits_request_fields() {
    let set =
        "v0: bytes = bytes \"bob\"\nset_input in0, v0\nv1: bytes = bytes \"new\"\nset_input in1, v1\nforward";
    let (world, answers) = run(&format!("{REQUEST}response"), &[("request", set)]);
    assert!(answers.iter().all(|a| a.code() == Some(0)));
    for received in world.received() {
        for (nth, message) in received.messages.iter().enumerate() {
            assert_eq!(message.payload, edited("bob", nth as u64 + 1));
        }
        // Where both sides stream, the headers cannot wait for a message.
        if received.path() != BOTH {
            assert_eq!(received.header("x-in"), Some("new"));
        }
    }
    let (world, _) = run(
        &format!("{REQUEST}response"),
        &[("open", "v0: bytes = bytes \"new\"\nset_input in1, v0\nforward")],
    );
    assert!(world.received().iter().all(|r| r.header("x-in") == Some("new")));
}

/// Changed response headers and trailers would come too late, or not at all.
#[test]
fn set_edits_response_headers() {
    let response = "response\ninput \"h\" TEXT nullable header \"x-up\" written\n\
        input \"t\" TEXT nullable trailer \"x-end\" written\ninput \"u\" TEXT body \"user\" written\n";
    let header = "v0: bytes = bytes \"changed\"\nset_input in0, v0\nset_input in2, v0\nforward";
    let trailer = "clear_input in1\nforward";
    let (_, answers) = run(&format!("request\n{response}"), &[("response", header), ("close", trailer)]);
    for answer in &answers {
        assert_eq!(answer.code(), Some(0));
        assert_eq!(field(&answer.headers, "x-up"), Some("changed"));
        assert_eq!(field(answer.trailers(), "x-end"), None);
        let sent: Vec<_> = (1..=answer.messages.len() as u64).map(|n| edited("changed", n)).collect();
        assert!(answer.messages.iter().map(|m| &m.payload).eq(&sent));
    }
}

/// A program could smuggle header lines into a request.
#[test]
fn invalid_header_value_removes_header() {
    let set = "v0: bytes = bytes \"a\\x0d\\x0ax-evil: 1\"\nset_input in1, v0\nforward";
    let (world, _) = run(&format!("{REQUEST}response"), &[("open", set)]);
    assert_eq!(world.received().len(), 4);
    assert!(world.received().iter().all(|r| r.header("x-in").is_none() && r.header("x-evil").is_none()));
}

/// An element that fails would let its message pass.
#[test]
fn failed_element_ends_call() {
    let (world, answers) = run("request\nresponse", &[("request", "v0: int = int 2\nfail v0")]);
    assert!(answers.iter().all(|a| a.code() == Some(13) && a.text().contains("element `e` failed")));
    assert!(world.received().iter().all(|r| r.messages.is_empty()));
}
