//! What a handler reads, writes and returns.

use super::{Handler, Scope, Slot, Step, Verdict, word};

impl Handler {
    /// Whether it changes the rank of its partition.
    pub fn ranks(&self) -> bool {
        self.stores(Slot::new(Scope::Partition, word::RANK))
    }

    /// Whether it writes a word.
    pub fn stores(&self, wanted: Slot) -> bool {
        stores(&self.body, wanted)
    }

    /// Whether it reads a word.
    pub fn loads(&self, wanted: Slot) -> bool {
        any(&self.body, &mut |step| matches!(step, Step::Load(_, slot) if *slot == wanted))
    }

    /// Whether one of its paths ends with this verdict.
    pub fn may_end_with(&self, wanted: Verdict) -> bool {
        any(&self.body, &mut |step| matches!(step, Step::End(verdict, _) if *verdict == wanted))
    }

    /// The packet word that it returns, if it does nothing else.
    pub fn given_word(&self) -> Option<u16> {
        match self.body[..] {
            [Step::Load(loaded, Slot { scope: Scope::Packet, word }), Step::Give(given)]
                if loaded == given =>
            {
                Some(word)
            }
            _ => None,
        }
    }
}

/// Whether one of the steps writes a word.
pub fn stores(steps: &[Step], wanted: Slot) -> bool {
    any(steps, &mut |step| matches!(step, Step::Store(slot, _) if *slot == wanted))
}

/// Whether the predicate is true for some step.
fn any(steps: &[Step], is_it: &mut impl FnMut(&Step) -> bool) -> bool {
    steps.iter().any(|step| match step {
        Step::If { then, otherwise, .. } => is_it(step) || any(then, is_it) || any(otherwise, is_it),
        _ => is_it(step),
    })
}
