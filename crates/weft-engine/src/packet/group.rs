//! Port groups: one port of a group, or all, send a frame.
//!
//! The plan, the frame and the links that are up choose the port. A flow keeps its port as long as that port is up.
//! When a port goes down, its flows spread over the others, and no other flow moves (rendezvous hashing: D. Thaler and
//! C. Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Trans. Networking 6(1), 1998). The
//! result is a table of a few thousand classes of flows, so a frame costs one lookup.

use super::reader::{Reader, Scratch};
use crate::plan::ChainError;
use crate::state::Staged;
use std::sync::Arc;
use weft_core::Time;
use weft_core::abi::Verdict;
use weft_core::flow::flow_of;
use weft_core::frame::{Frame, Pool};
use weft_core::hash::{hash_bytes, hash_word, mix};
#[cfg(doc)]
use weft_core::limits::{GROUP_MEMBERS_MAX, GROUP_WEIGHTS_MAX};
use weft_ir::backend::Backend;
use weft_ir::program::ChainProgram;

/// Classes of flows in a group: shares are exact to a few hundredths.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 11;
/// No port of the group is up.
const NO_MEMBER: u16 = u16::MAX;

/// A group in a plan.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// Its name; no port has the same.
    pub name: String,
    /// How it chooses a port.
    pub choice: Choice,
    /// The key of frames, for [`Choice::Key`].
    pub key: Option<Arc<GroupKey>>,
    /// Its ports, 1 to [`GROUP_MEMBERS_MAX`].
    pub members: Vec<Member>,
    /// Frames of its ports begin with the IP header.
    pub is_ip: bool,
}

/// The key of a group: a program that marks a frame with a number.
#[derive(Debug)]
pub struct GroupKey {
    /// The program's source text.
    text: String,
    reader: Reader,
}

/// A port of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// An index into [`super::plan::PacketPlan::ports`].
    pub port: u16,
    /// Its weight, from 1; the sum of a group is at most [`GROUP_WEIGHTS_MAX`].
    pub weight: u16,
}

/// How a group chooses among its ports that are up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Each port sends a copy.
    All,
    /// One port per flow, by weight.
    Flow,
    /// One port per key, by weight; frames without a key use the flow.
    Key,
    /// The first port.
    First,
}

/// Counts of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// Its name.
    pub name: String,
    /// How it chooses a port, as in the program.
    pub choice: String,
    /// Its ports, in the order of the program.
    pub members: Vec<MemberStats>,
}

/// Counts of a port in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStats {
    /// The port.
    pub port: String,
    /// Its weight.
    pub weight: u16,
    /// Whether its link is up.
    pub is_up: bool,
    /// Frames that it sent for the group.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

/// A running group.
#[derive(Debug)]
pub(super) struct Group {
    plan: GroupPlan,
    /// Per class of flows: its port. One entry if flows make no difference.
    slots: Vec<u16>,
    /// Per member: frames and bytes.
    sent: Vec<(u64, u64)>,
    /// Runs the key program, if there is one.
    scratch: Scratch,
}

/// The port that sends a frame.
pub(super) enum MemberChoice {
    /// This port.
    Port(u16),
    /// All ports that are up.
    All,
    /// No port of the group is up.
    None,
}

impl GroupPlan {
    /// Says how the group chooses a port, as in the program.
    fn choice(&self) -> String {
        match (self.choice, &self.key) {
            (Choice::All, _) => "all".to_owned(),
            (Choice::First, _) => "failover".to_owned(),
            (Choice::Key, Some(key)) => format!("select by {}", key.text),
            (Choice::Flow | Choice::Key, _) => "select by flow()".to_owned(),
        }
    }
}

impl GroupKey {
    /// Binds and compiles a program that reads nothing but a frame; `text` is its source.
    ///
    /// # Errors
    /// See [`ChainError`]. Abandon the update then.
    pub fn build(
        version: u64,
        text: &str,
        program: ChainProgram,
        state: &mut Staged,
        backend: &dyn Backend,
    ) -> Result<Self, ChainError> {
        Ok(Self { text: text.to_owned(), reader: Reader::build(version, program, state, backend)? })
    }

    /// The key of a frame: the low half of its hash. None if it has no key or is malformed.
    fn of(&self, scratch: &mut Scratch, now: Time, frame: &Frame, pool: &Pool) -> Option<u32> {
        let left = self.reader.run(scratch, now, frame, pool)?;
        left.marks.class().filter(|key| *key != 0 && left.verdict == Verdict::Forward)
    }
}

impl Group {
    /// Creates a group of a plan; counts of an earlier group with the same name continue by port.
    pub(super) fn new(plan: &GroupPlan, names: &[String], before: Option<&GroupStats>, up: &[bool]) -> Self {
        let counted = |member: &Member| {
            let name = &names[usize::from(member.port)];
            let known = before.and_then(|before| before.members.iter().find(|known| known.port == *name));
            known.map_or((0, 0), |known| (known.sent, known.sent_bytes))
        };
        let sent = plan.members.iter().map(counted).collect();
        let scratch = plan.key.as_ref().map(|key| key.reader.scratch()).unwrap_or_default();
        let mut group = Self { plan: plan.clone(), slots: Vec::new(), sent, scratch };
        group.compute_table(names, up);
        group
    }

    /// Computes the table of ports by flow class, for the links that are up now.
    pub(super) fn compute_table(&mut self, names: &[String], up: &[bool]) {
        let is_up = |member: &&Member| up[usize::from(member.port)];
        let active: Vec<Member> = self.plan.members.iter().filter(is_up).copied().collect();
        self.slots = match (self.plan.choice, active.first()) {
            (_, None) => vec![NO_MEMBER],
            (Choice::All | Choice::First, Some(first)) => vec![first.port],
            (Choice::Flow | Choice::Key, Some(_)) => {
                let seeds: Vec<(u64, Member)> = active
                    .iter()
                    .map(|member| (hash_bytes(names[usize::from(member.port)].as_bytes()), *member))
                    .collect();
                (0..SLOTS as u64).map(|slot| preferred_port(&seeds, slot)).collect()
            }
        };
    }

    pub(super) fn plan(&self) -> &GroupPlan {
        &self.plan
    }

    /// Chooses the port for a frame: one member, or all of them. None if no member is up.
    #[inline]
    pub(super) fn choose_member(&mut self, now: Time, frame: &Frame, pool: &Pool) -> MemberChoice {
        let key = self.plan.key.as_ref().filter(|_| self.slots.len() > 1);
        let slot = match key.and_then(|key| key.of(&mut self.scratch, now, frame, pool)) {
            Some(key) => (key >> (u32::BITS - SLOT_BITS)) as usize,
            None if self.slots.len() == 1 => 0,
            None => (flow_of(pool.bytes(frame), self.plan.is_ip).flow >> (u32::BITS - SLOT_BITS)) as usize,
        };
        match (self.slots[slot], self.plan.choice) {
            (NO_MEMBER, _) => MemberChoice::None,
            (_, Choice::All) => MemberChoice::All,
            (port, _) => MemberChoice::Port(port),
        }
    }

    /// The ports of the group.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.plan.members.iter().map(|member| member.port)
    }

    /// Counts a frame of that many bytes that left by a port.
    #[inline]
    pub(super) fn count(&mut self, port: u16, bytes: usize) {
        let at = self.plan.members.iter().position(|member| member.port == port);
        if let Some(sent) = at.and_then(|at| self.sent.get_mut(at)) {
            sent.0 += 1;
            sent.1 += bytes as u64;
        }
    }

    /// Returns the counters of the group, by member.
    pub(super) fn stats(&self, names: &[String], up: &[bool]) -> GroupStats {
        let member = |(member, (sent, sent_bytes)): (&Member, &(u64, u64))| MemberStats {
            port: names[usize::from(member.port)].clone(),
            weight: member.weight,
            is_up: up[usize::from(member.port)],
            sent: *sent,
            sent_bytes: *sent_bytes,
        };
        let members = self.plan.members.iter().zip(&self.sent).map(member).collect();
        GroupStats { name: self.plan.name.clone(), choice: self.plan.choice(), members }
    }
}

impl GroupStats {
    /// Adds another worker's counts of the group.
    pub(super) fn merge(&mut self, other: &Self) {
        for theirs in &other.members {
            match self.members.iter_mut().find(|mine| mine.port == theirs.port) {
                Some(mine) => {
                    mine.sent += theirs.sent;
                    mine.sent_bytes += theirs.sent_bytes;
                }
                None => self.members.push(theirs.clone()),
            }
        }
    }
}

/// Returns the port that a class of flows prefers: each port draws once per unit of its weight, and the best draw
/// wins.
fn preferred_port(active: &[(u64, Member)], slot: u64) -> u16 {
    // Neighbouring slots differ in few bits, and after one hash step two ports would draw alike for them.
    let slot = hash_word(slot);
    let draws = active.iter().flat_map(|(seed, member)| {
        (0..u64::from(member.weight)).map(move |nth| (hash_word(mix(mix(*seed, nth), slot)), member.port))
    });
    draws.max().map_or(NO_MEMBER, |(_, port)| port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(weights: &[u16], up: &[bool]) -> Group {
        let member = |(port, weight): (u16, &u16)| Member { port, weight: *weight };
        let members = (0..).zip(weights).map(member).collect();
        let plan = GroupPlan { name: "g".into(), choice: Choice::Flow, key: None, members, is_ip: false };
        let names: Vec<String> = (0..weights.len()).map(|port| format!("p{port}")).collect();
        Group::new(&plan, &names, None, up)
    }

    fn share(group: &Group, port: u16) -> f64 {
        group.slots.iter().filter(|of| **of == port).count() as f64 / group.slots.len() as f64
    }

    #[test]
    fn flows_stay_when_another_port_fails() {
        // If it failed, flows would move without need: packets reorder, and state on the old path is lost.
        let all = group(&[3, 1, 2], &[true; 3]);
        for (port, wanted) in [(0, 0.5), (1, 1.0 / 6.0), (2, 1.0 / 3.0)] {
            assert!((share(&all, port) - wanted).abs() < 0.04, "{port} has {}", share(&all, port));
        }
        let fewer = group(&[3, 1, 2], &[true, true, false]);
        for (before, now) in all.slots.iter().zip(&fewer.slots) {
            assert!(*now != 2 && (*before == 2 || before == now), "{before} became {now}");
        }
        assert!((share(&fewer, 0) - 0.75).abs() < 0.04);
        assert_eq!(group(&[1, 1], &[false; 2]).slots, [NO_MEMBER]);
    }

    /// If it failed, the names of ports would decide their shares.
    #[test]
    fn shares_depend_on_weights_only() {
        for (begin, n) in
            ["p", "wan", "eth", "uplink-", "a", "port number "].into_iter().zip([2, 2, 3, 4, 8, 16])
        {
            let members = (0..n).map(|port| Member { port, weight: 1 }).collect();
            let plan = GroupPlan { name: "g".into(), choice: Choice::Flow, key: None, members, is_ip: false };
            let names: Vec<String> = (0..n).map(|port| format!("{begin}{port}")).collect();
            let group = Group::new(&plan, &names, None, &vec![true; usize::from(n)]);
            let wanted = 1.0 / f64::from(n);
            // Four standard deviations.
            let most = 4.0 * (wanted * (1.0 - wanted) / SLOTS as f64).sqrt();
            for port in 0..n {
                let share = share(&group, port);
                assert!((share - wanted).abs() < most, "{begin}{port} of {n} has {share}");
            }
        }
    }
}
