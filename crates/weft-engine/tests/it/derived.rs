//! Derived values: those of the message as it is at its position in the chain.

use crate::support::*;
use weft_core::Interval;
use weft_core::filter::{Policies, Timeouts};
use weft_core::hash::{hash_bytes, mix};
use weft_engine::plan::FilterAt;

/// The messages of one direction, as an element sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Observed {
    /// Their sizes, as one number.
    sizes: u64,
    payloads: u64,
}

impl Observed {
    fn also(self, size: usize, payload: &[u8]) -> Self {
        Self { sizes: mix(self.sizes, size as u64), payloads: mix(self.payloads, hash_bytes(payload)) }
    }
}

/// A handler that stores the derived values of a message in two variables, beginning with this one.
fn looks(var: usize, op: &str) -> String {
    format!(
        "lock_vars\nv0: int = var_get var{var}\nv1: int = {op} in1\nv2: int = hash_mix v0, v1\nvar_set var{var}, v2\n\
         v3: int = var_get var{behind}\nv4: bytes = {op} in2\nv5: int = hash v4\nv6: int = hash_mix v3, v5\n\
         var_set var{behind}, v6\nforward",
        behind = var + 1
    )
}

/// One element that sets `user` in requests that have `n` = 7, and one on each side of it that looks.
fn watched_chain() -> String {
    let inputs = "input \"user\" TEXT body \"user\" written\ninput \"size\" SIZE meta size\n\
        input \"payload\" BYTES body\ninput \"n\" I64 body \"n\"\n";
    let set = "block0:\nv0: int = input in3\nv1: int = int 7\nv2: bool = icmp.eq v0, v1\n\
        branch v2, block1, block2\nblock1:\nv3: bytes = bytes \"bobby\"\nset_input in0, v3\njump block2\n\
        block2:\nforward";
    let (plain, derived) = ("input", "derived");
    chain(
        &format!("request\n{inputs}response\n{inputs}{}", vars("a", 8)),
        &[
            &element("a", &[("request", &looks(0, plain)), ("response", &looks(2, derived))]),
            &element("b", &[("request", set), ("response", set)]),
            &element("c", &[("request", &looks(4, derived)), ("response", &looks(6, plain))]),
        ],
    )
}

/// The view of the first and the last element, of requests and of responses, with filters at these positions.
fn seen(at: &[usize], path: &str, encoding: Option<&str>, messages: &[Message]) -> [Observed; 4] {
    let timeouts = Timeouts { total: Some(Interval::from_secs(9)), per_try: None, propagate: None };
    let policies = Policies { timeouts, ..Policies::default() };
    let filter = |at: &usize| FilterAt { at: *at, name: format!("f{at}"), policies: policies.clone() };
    let mut net = Net::new();
    net.filters = at.iter().map(filter).collect();
    let mut world = World::new(1, net.plan(Some(&watched_chain()), &[CART]))
        .server(CART, |_| Behaviour::default().header("grpc-encoding", "gzip"));
    let client = world.client("front");
    let mut call = Call::stream(path, messages.to_vec());
    if let Some(encoding) = encoding {
        call = call.header("grpc-encoding", encoding);
    }
    let call = world.call(client, call);
    world.run();
    assert_eq!(world.answer(call).code(), Some(0), "{:?}", world.answer(call));
    let vars = var_values(&mut world, 8);
    core::array::from_fn(|nth| Observed { sizes: vars[2 * nth], payloads: vars[2 * nth + 1] })
}

/// If it failed, a digest would be of a message that is not sent, or differ if a filter precedes its element.
#[test]
fn derived_values_follow_edits() {
    for path in [ADD, BOTH] {
        let n = if path == ADD { 1 } else { 3 };
        for (changed, n_sent) in [(true, 7), (false, 8)] {
            let sent: Vec<Vec<u8>> = (0..n).map(|nth| item("ann", n_sent, &vec![b'x'; nth * 90])).collect();
            let behind = |message: &Vec<u8>, nth: usize| match changed {
                true => rewritten(nth),
                false => message.clone(),
            };
            let (mut first, mut last) = (Observed::default(), Observed::default());
            for (nth, message) in sent.iter().enumerate() {
                first = first.also(message.len(), message);
                let behind = behind(message, nth);
                last = last.also(behind.len(), &behind);
            }
            // The server echoes its input; responses pass the chain backwards.
            let wanted = [first, last, last, last];
            let messages: Vec<Message> = sent.iter().cloned().map(Message::new).collect();
            for at in [&[][..], &[1], &[2], &[1, 2]] {
                assert_eq!(seen(at, path, None, &messages), wanted, "{path}, changed: {changed}, {at:?}");
            }
        }
    }
}

/// A user of 5 letters in place of 3; an edited field moves behind the others.
fn rewritten(nth: usize) -> Vec<u8> {
    let kept = item("", 7, &vec![b'x'; nth * 90]);
    [&kept[..], &item("bobby", 0, b"")].concat()
}

/// If it failed, the size of a compressed message would be that of bytes that were never on the wire.
#[test]
fn size_is_the_compressed_length() {
    for (changed, n_sent) in [(true, 7), (false, 8)] {
        let plain = item("ann", n_sent, b"");
        let packed = stored_gzip(&plain);
        let first = Observed::default().also(packed.len(), &plain);
        let last = match changed {
            true => Observed::default().also(rewritten(0).len(), &rewritten(0)),
            false => first,
        };
        let message = Message { payload: packed, compressed: true };
        for at in [&[][..], &[1], &[2], &[1, 2]] {
            let seen = seen(at, ADD, Some("gzip"), core::slice::from_ref(&message));
            assert_eq!(seen, [first, last, last, last], "changed: {changed}, {at:?}");
        }
    }
}

/// If it failed, an element would take malformed bytes for a message, and keep them in its state.
#[test]
fn malformed_message_derives_nothing() {
    let inputs = "input \"user\" TEXT body \"user\" written\ninput \"size\" SIZE meta size\n";
    let count = "v0: int = derived in1\nv1: bool = scratch_full\nbranch v1, block1, block2\n\
        block1:\nv2: int = int 4\nfail v2\n\
        block2:\nlock_vars\nvar_set var0, v0\nforward";
    let set = "v0: bytes = bytes \"bobby\"\nset_input in0, v0\nforward";
    let text = chain(
        &format!("request\n{inputs}response\n{}", vars("count", 1)),
        &[
            &element("set", &[("request", set)]),
            &element("count", &[("request", &format!("block0:\n{count}"))]),
        ],
    );
    let mut world =
        World::new(1, Net::new().plan(Some(&text), &[CART])).server(CART, |_| Behaviour::default());
    let client = world.client("front");
    // A field of more bytes than there are.
    let cut = world.call(client, Call::unary(ADD, b"\x0a\x7fann".to_vec()));
    world.run();
    let answer = world.answer(cut);
    assert_eq!(answer.code(), Some(13));
    assert!(answer.text().starts_with("a column cannot be set: "), "{}", answer.text());
    assert_eq!((var_values(&mut world, 1), refusals(&mut world, "grpc_malformed_message")), (vec![0], 1));
    assert!(world.received().is_empty());
}
