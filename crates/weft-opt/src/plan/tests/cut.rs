//! The place where a filter cuts a chain is invisible to its elements.

use super::*;

/// The effects of a call's request pass on the message, on state and on sinks; None where it ran out of room.
struct Outcome {
    message: Message,
    verdict: Verdict,
    rows: Vec<(u16, Vec<Observed>)>,
    state: String,
}

/// Runs the request pass through a chain that is cut into parts; each gets the message as the previous one has left it
/// on the wire.
fn request(node: &mut Node, parts: &[Arc<ChainProgram>], call: &Call) -> Option<Outcome> {
    let mut pass = call.request.clone();
    let (mut edits, mut rows) = (Vec::new(), Vec::new());
    let mut last: Option<Observation> = None;
    for part in parts {
        pass.opened = part.elements.len();
        node.world.counters = vec![Default::default(); part.elements.len()];
        let (mut seen, noted) = node.run(part, &pass);
        if noted.iter().any(|(_, access)| *access == Access::Full) {
            return None;
        }
        edits.extend(seen.edits.iter().cloned());
        rows.extend(seen.rows.iter().cloned());
        let ended = is_ended(&seen);
        // The target set by a part stays.
        if !ended && last.as_ref().is_some_and(|last| last.verdict == Verdict::Redirect) {
            seen.verdict = Verdict::Redirect;
        }
        Message::of(&pass, &seen.edits).write_to(&mut pass);
        last = Some(seen);
        if ended {
            break;
        }
    }
    let last = last?;
    let state = format!("{:?} {:?} {:?} {:?}", own_tables(&last), last.vars, last.call, node.sent());
    Some(Outcome { message: Message::of(&call.request, &edits), verdict: last.verdict, rows, state })
}

#[test]
fn cut_is_invisible_to_elements() {
    // A filter between two elements would change what the second one does.
    let (mut compared, mut displaced) = (0u64, 0u64);
    for seed in 0..cases() {
        let mut case = Case::random(seed, 4);
        let n = case.chain.elements.len();
        let at = 1 + case.rng.below(n - 1);
        // The second part may see rows that reach a table in between. The message here has no wire format, so its size
        // could differ between the two: tests of the engine cut chains that read it.
        let features = Feature::of(&case);
        let is_seen = [Feature::SendsWhatIsRead, Feature::ReadsSize].iter().any(|of| features.contains(of));
        let parts: Vec<Arc<ChainProgram>> = case.chain.cut(&[at]).into_iter().map(Arc::new).collect();
        let mut nodes = [(); 2].map(|()| Node::new(&case.chain, &case.other, case.workers));
        for nth in 0..CALLS {
            let call = Call::random(&mut case.rng, &case.chain, nth);
            nodes.iter_mut().for_each(|node| node.begin(nth));
            let whole = request(&mut nodes[0], &[Arc::clone(&case.chain)], &call);
            let cut = request(&mut nodes[1], &parts, &call);
            let (Some(whole), Some(cut)) = (whole, cut) else { break };
            if is_seen {
                break;
            }
            compared += 1;
            displaced += u64::from(whole.message.displaces());
            let what = format!("seed {seed}, cut before {at}, call {nth}");
            assert_eq!(whole.verdict, cut.verdict, "{what}");
            assert_eq!(whole.state, cut.state, "{what}");
            assert_eq!(whole.rows, cut.rows, "{what}");
            if matches!(whole.verdict, Verdict::Forward | Verdict::Redirect) {
                assert_eq!(whole.message, cut.message, "{what}");
            }
        }
    }
    println!("{compared} calls compared, in {displaced} a member of the oneof was displaced");
    assert!(compared > cases() && displaced * 20 > compared, "{displaced} of {compared}");
}
