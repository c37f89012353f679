use std::collections::BTreeSet;
use std::sync::Arc;

use weft_core::Time;
use weft_core::abi::Verdict;
use weft_ir::generate::{self, Observation, Pass, Rng, World};
use weft_ir::interp::{Access, AccessAt};
use weft_ir::program::{ChainProgram, Event};

use super::{Cell, ChainEffects, Effects, EndKind, RowSet, Source, effects};

const CHAINS: u64 = 300;
const PASSES: usize = 12;

/// The effects of each part of a segment, in the order in which they run.
fn parts<'e>(chain: &ChainProgram, of: &'e ChainEffects, event: Event) -> Vec<&'e Effects> {
    let one = |part: (usize, u16)| {
        let element = &of.elements[usize::from(part.1)];
        let is_second = part.0 > 0 && chain.parts(event)[part.0 - 1].element == part.1;
        let handler = match event {
            Event::Open => &element.open,
            Event::OpenRequest if !is_second && element.open.is_some() => &element.open,
            Event::OpenRequest | Event::Request => &element.request,
            Event::Response => &element.response,
            Event::Close => &element.close,
            Event::Parse => unreachable!("a parser belongs to no element"),
            Event::Every(_, nth) => return &element.every[usize::from(nth)],
            Event::Timeout(_, nth) => return &element.timeouts[usize::from(nth)].1,
        };
        handler.as_ref().expect("a part has its handler")
    };
    chain.parts(event).iter().map(|part| part.element).enumerate().map(one).collect()
}

/// Whether the effects allow an observed access.
fn allows(effects: &Effects, access: &Access) -> bool {
    let cell = |cell: Cell| effects.cells.get(&cell);
    match access {
        Access::ReadInput(id) => effects.reads.contains_key(id),
        Access::WriteInput(id) => effects.writes.contains_key(id),
        Access::Answer(name) => effects.answers.contains_key(name),
        Access::Reply(name) => effects.replies.contains_key(name),
        Access::Now => !effects.clock.is_empty(),
        Access::Rand(site) => effects.draws.contains_key(site),
        Access::Room => !effects.room.is_empty(),
        Access::Full => !effects.room.is_empty(),
        Access::ReadCall(id) => cell(Cell::Call(*id)).is_some_and(|used| !used.reads.is_empty()),
        Access::WriteCall(id) => cell(Cell::Call(*id)).is_some_and(|used| !used.writes.is_empty()),
        Access::ReadVar(id) => cell(Cell::Var(*id)).is_some_and(|used| !used.reads.is_empty()),
        Access::WriteVar(id) => cell(Cell::Var(*id)).is_some_and(|used| !used.writes.is_empty()),
        Access::MergeVar(id) => cell(Cell::Var(*id)).is_some_and(|used| !used.merges.is_empty()),
        Access::ReadRows(table, key) => {
            let reads_of_table = effects.table_reads.iter().filter(|look| look.table == *table);
            let mut fits = reads_of_table.filter(|look| match (&look.key, key) {
                (Some(inferred), Some(real)) => inferred.known.as_ref().is_none_or(|known| known == real),
                (None, None) => true,
                _ => false,
            });
            fits.next().is_some() && cell(Cell::Rows(*table)).is_some_and(|used| !used.reads.is_empty())
        }
        Access::WriteRows(table) => cell(Cell::Rows(*table)).is_some_and(|used| !used.writes.is_empty()),
        Access::ReadColumn(table, column) => {
            cell(Cell::Column(*table, *column)).is_some_and(|used| !used.reads.is_empty())
        }
        Access::WriteColumn(table, column) => {
            cell(Cell::Column(*table, *column)).is_some_and(|used| !used.writes.is_empty())
        }
        Access::Emit(sink) => effects.sinks.contains_key(sink),
        Access::Delay => !effects.delays.is_empty(),
        Access::Mark => !effects.marks.is_empty(),
        Access::Mirror => !effects.mirrors.is_empty(),
        Access::ChangeHeaders => !effects.reshapes.is_empty(),
    }
}

/// Checks the verdict of a pass against its element's ends; None if it is allowed.
fn check_end(of: &ChainEffects, event: Event, seen: &Observation) -> Option<String> {
    let element = of.elements.get(usize::from(seen.element))?;
    let handlers: Vec<&Effects> = match event {
        Event::OpenRequest => element.open.iter().chain(&element.request).collect(),
        Event::Open => element.open.iter().collect(),
        Event::Request => element.request.iter().collect(),
        Event::Response => element.response.iter().collect(),
        Event::Close => element.close.iter().collect(),
        Event::Parse => Vec::new(),
        Event::Every(_, nth) => vec![&element.every[usize::from(nth)]],
        Event::Timeout(_, nth) => vec![&element.timeouts[usize::from(nth)].1],
    };
    if seen.verdict == Verdict::Redirect {
        let may = handlers.iter().any(|effects| effects.redirects.contains(&seen.line));
        return (!may).then(|| format!("a redirect on line {} of {handlers:?}", seen.line));
    }
    let mut ends = handlers.iter().flat_map(|effects| &effects.ends);
    let may = ends.any(|end| {
        end.line == seen.line
            && match (&end.kind, seen.verdict) {
                (EndKind::Drop, Verdict::Drop) | (EndKind::Reply, Verdict::Reply) => true,
                (EndKind::Abort(status, text), Verdict::Abort(real)) => {
                    status.is_none_or(|status| status == real)
                        && text.as_ref().is_none_or(|text| *text == seen.text)
                }
                (EndKind::Fail(faults), Verdict::Failed(fault)) => {
                    faults.is_empty() || faults.contains(&fault)
                }
                _ => false,
            }
    });
    (!may).then(|| format!("{:?} on line {}", seen.verdict, seen.line))
}

/// The first access that the effects of its part do not allow.
fn outside(parts: &[&Effects], noted: &[AccessAt]) -> Option<String> {
    let mut own = BTreeSet::new();
    for (part, access) in noted {
        match access {
            Access::WriteInput(id) => {
                own.insert((part, id));
            }
            // The handler reads its own write here, not what it found.
            Access::ReadInput(id) if own.contains(&(part, id)) => continue,
            _ => {}
        }
        if !allows(parts[*part], access) {
            return Some(format!("part {part}: {access:?}"));
        }
    }
    None
}

/// A write that should always happen, and did not although all parts let the tuple go on.
fn left_out(
    chain: &ChainProgram,
    parts: &[&Effects],
    noted: &[AccessAt],
    (event, seen): (Event, &Observation),
) -> Option<String> {
    // In CLOSE some elements may not take part; failures that are let pass are undone.
    let went_on = matches!(seen.verdict, Verdict::Forward | Verdict::Redirect) && event != Event::Close;
    if !went_on {
        return None;
    }
    for (nth, part) in chain.parts(event).iter().enumerate() {
        let always = parts[nth].writes.iter().filter(|(_, write)| write.always);
        for (id, _) in always.filter(|_| !chain.elements[usize::from(part.element)].fail_open) {
            if !noted.contains(&(nth, Access::WriteInput(*id))) {
                return Some(format!("part {nth} has not written {id:?}"));
            }
        }
    }
    None
}

/// The first access of random chains on random passes that the effects from `infer` do not allow.
fn violation(chains: u64, infer: impl Fn(&ChainProgram) -> ChainEffects) -> Option<String> {
    for seed in 0..chains {
        let mut rng = Rng::from_seed(seed);
        let chain = Arc::new(generate::chain(&mut rng));
        let inferred = infer(&chain);
        let mut world = World::new(&chain);
        for nth in 0..PASSES {
            let now = Time(1_000_000_000 * (nth as i64 + 1));
            let pass = Pass::random(&mut rng, &chain, now);
            let (seen, noted) = world.run_with_accesses(&chain, &pass);
            let parts = parts(&chain, &inferred, pass.event);
            let told = outside(&parts, &noted)
                .or_else(|| check_end(&inferred, pass.event, &seen))
                .or_else(|| left_out(&chain, &parts, &noted, (pass.event, &seen)));
            if let Some(told) = told {
                return Some(format!("seed {seed}, pass {nth} of {:?}: {told}", pass.event));
            }
        }
    }
    None
}

#[test]
fn pass_stays_within_effects() {
    // With a missing effect, a reordering that changes behaviour would look harmless.
    assert_eq!(violation(CHAINS, effects), None);
}

/// Removes something from the effects of a handler.
type Forget = fn(&mut Effects);

/// The effects of a chain, with something removed from those of each handler.
fn without(chain: &ChainProgram, forget: Forget) -> ChainEffects {
    let mut all = effects(chain);
    for element in &mut all.elements {
        let single = [&mut element.open, &mut element.request, &mut element.response, &mut element.close];
        let expired = element.timeouts.iter_mut().map(|(_, effects)| effects);
        let timed = element.every.iter_mut().chain(expired);
        single.into_iter().flatten().chain(timed).for_each(forget);
    }
    all
}

#[test]
fn missing_effects_are_detected() {
    // If the test accepted a weaker inference, it would prove nothing.
    let omissions: [(&str, Forget); 22] = [
        ("reads", |e| e.reads.clear()),
        ("writes", |e| e.writes.clear()),
        ("that a write may not happen", |e| e.writes.values_mut().for_each(|write| write.always = true)),
        ("answers", |e| e.answers.clear()),
        ("replies", |e| e.replies.clear()),
        ("sinks", |e| e.sinks.clear()),
        ("mirrors", |e| e.mirrors.clear()),
        ("changes of structure", |e| e.reshapes.clear()),
        ("delays", |e| e.delays.clear()),
        ("marks", |e| e.marks.clear()),
        ("redirects", |e| e.redirects.clear()),
        ("clock", |e| e.clock.clear()),
        ("draws", |e| e.draws.clear()),
        ("room", |e| e.room.clear()),
        ("table_reads", |e| e.table_reads.clear()),
        ("columns", |e| e.cells.retain(|cell, _| !matches!(cell, Cell::Column(..)))),
        ("rows", |e| e.cells.retain(|cell, _| !matches!(cell, Cell::Rows(_)))),
        ("variables", |e| e.cells.retain(|cell, _| !matches!(cell, Cell::Var(_)))),
        ("the call's row", |e| e.cells.retain(|cell, _| !matches!(cell, Cell::Call(_)))),
        ("writes to state", |e| e.cells.values_mut().for_each(|used| used.writes.clear())),
        ("merges", |e| e.cells.values_mut().for_each(|used| used.merges.clear())),
        ("ends", |e| e.ends.clear()),
    ];
    for (what, forget) in omissions {
        assert!(
            violation(CHAINS, |chain| without(chain, forget)).is_some(),
            "no test detects the loss of {what}"
        );
    }
}

/// Whether an input may influence the ends of an element, according to `may`.
fn is_decided(may: &ChainEffects, event: Event, input: u16) -> bool {
    let depends = |effects: &Effects| {
        let mut ends = effects.ends.iter();
        ends.any(|end| end.when.contains(&Source::Input(weft_ir::ir::InputId(input))))
    };
    may.elements.iter().flat_map(|element| element.handlers()).any(|(name, effects)| {
        let runs = match event {
            Event::OpenRequest => name == "open" || name == "request",
            _ => name == format!("{event:?}").to_lowercase(),
        };
        runs && depends(effects)
    })
}

/// The first pass whose end changes with an input that, according to `infer`, no end depends on.
fn undecided(chains: u64, infer: impl Fn(&ChainProgram) -> ChainEffects) -> (usize, Option<String>) {
    let mut n_tried = 0;
    for seed in 0..chains {
        let mut rng = Rng::from_seed(seed);
        let mut chain = generate::chain(&mut rng);
        // Effects are per handler: one element's writes that another reads do not count.
        chain.elements.truncate(1);
        let chain = Arc::new(chain);
        let inferred = infer(&chain);
        for nth in 0..PASSES {
            let pass = Pass::random(&mut rng, &chain, Time(1_000_000_000));
            if matches!(pass.event, Event::OpenRequest | Event::Every(..) | Event::Timeout(..)) {
                continue;
            }
            let (before, noted) = World::new(&chain).run_with_accesses(&chain, &pass);
            for input in 0..pass.slots.len() {
                if is_decided(&inferred, pass.event, input as u16) {
                    continue;
                }
                let mut other = pass.clone();
                other.present.remove(input);
                other.slots[input] = Default::default();
                let (after, more) = World::new(&chain).run_with_accesses(&chain, &other);
                // The room is a source of its own.
                if noted.iter().chain(&more).any(|(_, access)| *access == Access::Full) {
                    continue;
                }
                n_tried += 1;
                if (before.verdict, before.line) != (after.verdict, after.line)
                    && before.verdict != Verdict::Redirect
                    && after.verdict != Verdict::Redirect
                {
                    return (n_tried, Some(format!("seed {seed}, pass {nth}, input {input}: {pass:?}")));
                }
            }
        }
    }
    (n_tried, None)
}

#[test]
fn end_depends_only_on_its_sources() {
    // With a missing source, an element would look independent of another one's writes.
    let (n_tried, found) = undecided(CHAINS / 4, effects);
    assert_eq!(found, None);
    assert!(n_tried > 500, "only {n_tried} passes were tried");
    let (_, found) =
        undecided(CHAINS, |chain| without(chain, |e| e.ends.iter_mut().for_each(|end| end.when.clear())));
    assert!(found.is_some(), "no test detects the loss of sources");
}

#[test]
fn rows_of_other_constants_are_apart() {
    // Unknown keys must count as equal.
    let key = |known: Option<&[u8]>| super::Key {
        text: None,
        known: known.map(<[u8]>::to_vec),
        sources: super::Sources::new(),
    };
    let (a, b, unknown) = (key(Some(b"a")), key(Some(b"b")), key(None));
    let of = |keys: &[&super::Key]| RowSet::Keys(keys.iter().map(|&key| key.clone()).collect());
    assert!(of(&[&a]).is_apart_from(&of(&[&b])));
    assert!(!of(&[&a, &b]).is_apart_from(&of(&[&b])));
    assert!(!of(&[&a]).is_apart_from(&of(&[&unknown])));
    assert!(!of(&[&a]).is_apart_from(&RowSet::All));
}
