//! Groups: ports that stand together, of which one or all take a frame.
//!
//! Which of them is decided by the plan, the frame and the links that are up. A flow keeps its port as long as that is
//! up: the flows of a port that goes down are spread over the others, and no other flow moves (rendezvous hashing:
//! D. Thaler and C. Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Trans. Networking 6(1),
//! 1998). What that gives is written down for some thousand classes of flows, so a frame costs one look.

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

/// Classes of flows that a group tells apart: shares are kept within some hundredths.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 11;
/// No port of the group is up.
const NOBODY: u16 = u16::MAX;

/// A group as a plan has it.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// Its name, which no port has.
    pub name: String,
    /// Which of its ports takes a frame.
    pub choice: Choice,
    /// What frames are told apart by, for [`Choice::Key`].
    pub key: Option<Arc<GroupKey>>,
    /// 1 to [`GROUP_MEMBERS_MAX`].
    pub members: Vec<Member>,
    /// Frames of its ports begin with the IP header.
    pub is_ip: bool,
}

/// What a group tells frames apart by: a program that marks a frame with a number.
#[derive(Debug)]
pub struct GroupKey {
    /// As a program writes it.
    text: String,
    reader: Reader,
}

/// A port of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// An index into [`super::plan::PacketPlan::ports`].
    pub port: u16,
    /// Its share of the flows beside those of others, from 1; all of them are at most [`GROUP_WEIGHTS_MAX`].
    pub weight: u16,
}

/// Which ports of a group take a frame, of those whose link is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Each a copy.
    All,
    /// The same one for all frames of a flow, by weight.
    Flow,
    /// The same one for all frames with the same key, by weight; of a frame that has none, by flow.
    Key,
    /// The first.
    First,
}

/// What a group counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// Its name.
    pub name: String,
    /// Which of its ports takes a frame, as a program writes it.
    pub choice: String,
    /// Its ports, in the order of the program.
    pub members: Vec<MemberStats>,
}

/// What a port got from a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStats {
    /// The port.
    pub port: String,
    /// Its share.
    pub weight: u16,
    /// Its link is up.
    pub is_up: bool,
    /// Frames that left by it.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

/// A group that runs.
#[derive(Debug)]
pub(super) struct Group {
    plan: GroupPlan,
    /// For each class of flows, its port; one for all where frames are not told apart by flow.
    slots: Vec<u16>,
    /// Frames and bytes, by member.
    sent: Vec<(u64, u64)>,
    /// For the key, if there is one.
    scratch: Scratch,
}

/// What takes a frame.
pub(super) enum Taker {
    /// This port.
    Port(u16),
    /// All that are up.
    All,
    /// No port of the group is up.
    Nobody,
}

impl GroupPlan {
    /// Which of its ports takes a frame, as a program writes it.
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
    /// Binds and compiles a program that looks at nothing but a frame; `text` is what it was made of.
    ///
    /// # Errors
    /// See [`ChainError`]. The update is to be given up then.
    pub fn build(
        version: u64,
        text: &str,
        program: ChainProgram,
        state: &mut Staged,
        backend: &dyn Backend,
    ) -> Result<Self, ChainError> {
        Ok(Self { text: text.to_owned(), reader: Reader::build(version, program, state, backend)? })
    }

    /// The key of a frame, the low half of its hash. None: it has none, or is malformed.
    fn of(&self, scratch: &mut Scratch, now: Time, frame: &Frame, pool: &Pool) -> Option<u32> {
        let left = self.reader.run(scratch, now, frame, pool)?;
        left.marks.class().filter(|key| *key != 0 && left.verdict == Verdict::Forward)
    }
}

impl Group {
    /// A group of a plan, with what one of the same name has counted by port.
    pub(super) fn new(plan: &GroupPlan, names: &[String], before: Option<&GroupStats>, up: &[bool]) -> Self {
        let counted = |member: &Member| {
            let name = &names[usize::from(member.port)];
            let known = before.and_then(|before| before.members.iter().find(|known| known.port == *name));
            known.map_or((0, 0), |known| (known.sent, known.sent_bytes))
        };
        let sent = plan.members.iter().map(counted).collect();
        let scratch = plan.key.as_ref().map(|key| key.reader.scratch()).unwrap_or_default();
        let mut group = Self { plan: plan.clone(), slots: Vec::new(), sent, scratch };
        group.choose(names, up);
        group
    }

    /// Decides anew, for links that are up now.
    pub(super) fn choose(&mut self, names: &[String], up: &[bool]) {
        let is_up = |member: &&Member| up[usize::from(member.port)];
        let live: Vec<Member> = self.plan.members.iter().filter(is_up).copied().collect();
        self.slots = match (self.plan.choice, live.first()) {
            (_, None) => vec![NOBODY],
            (Choice::All | Choice::First, Some(first)) => vec![first.port],
            (Choice::Flow | Choice::Key, Some(_)) => {
                let seeds: Vec<(u64, Member)> = live
                    .iter()
                    .map(|member| (hash_bytes(names[usize::from(member.port)].as_bytes()), *member))
                    .collect();
                (0..SLOTS as u64).map(|slot| best(&seeds, slot)).collect()
            }
        };
    }

    pub(super) fn plan(&self) -> &GroupPlan {
        &self.plan
    }

    /// Who takes a frame.
    #[inline]
    pub(super) fn taker(&mut self, now: Time, frame: &Frame, pool: &Pool) -> Taker {
        let key = self.plan.key.as_ref().filter(|_| self.slots.len() > 1);
        let slot = match key.and_then(|key| key.of(&mut self.scratch, now, frame, pool)) {
            Some(key) => (key >> (u32::BITS - SLOT_BITS)) as usize,
            None if self.slots.len() == 1 => 0,
            None => (flow_of(pool.bytes(frame), self.plan.is_ip).flow >> (u32::BITS - SLOT_BITS)) as usize,
        };
        match (self.slots[slot], self.plan.choice) {
            (NOBODY, _) => Taker::Nobody,
            (_, Choice::All) => Taker::All,
            (port, _) => Taker::Port(port),
        }
    }

    /// The ports of the group.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.plan.members.iter().map(|member| member.port)
    }

    /// A frame of so many bytes left by a port.
    #[inline]
    pub(super) fn count(&mut self, port: u16, bytes: usize) {
        let at = self.plan.members.iter().position(|member| member.port == port);
        if let Some(sent) = at.and_then(|at| self.sent.get_mut(at)) {
            sent.0 += 1;
            sent.1 += bytes as u64;
        }
    }

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

/// The port that a class of flows prefers: each draws once for each unit of its weight.
fn best(live: &[(u64, Member)], slot: u64) -> u16 {
    // Slots are next to each other, and one step of the hash leaves what two ports draw for them alike.
    let slot = hash_word(slot);
    let draws = live.iter().flat_map(|(seed, member)| {
        (0..u64::from(member.weight)).map(move |nth| (hash_word(mix(mix(*seed, nth), slot)), member.port))
    });
    draws.max().map_or(NOBODY, |(_, port)| port)
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
    fn flows_are_shared_by_weight_and_stay_when_another_port_goes_down() {
        // A flow that moves without need is out of order, and what keeps state on its old path is lost.
        let all = group(&[3, 1, 2], &[true; 3]);
        for (port, wanted) in [(0, 0.5), (1, 1.0 / 6.0), (2, 1.0 / 3.0)] {
            assert!((share(&all, port) - wanted).abs() < 0.04, "{port} has {}", share(&all, port));
        }
        let fewer = group(&[3, 1, 2], &[true, true, false]);
        for (before, now) in all.slots.iter().zip(&fewer.slots) {
            assert!(*now != 2 && (*before == 2 || before == now), "{before} became {now}");
        }
        assert!((share(&fewer, 0) - 0.75).abs() < 0.04);
        assert_eq!(group(&[1, 1], &[false; 2]).slots, [NOBODY]);
    }

    /// What ports are called would decide how much they get.
    #[test]
    fn shares_are_those_of_the_weights_whatever_the_names_are() {
        for (begin, n) in
            ["p", "wan", "eth", "uplink-", "a", "port number "].into_iter().zip([2, 2, 3, 4, 8, 16])
        {
            let members = (0..n).map(|port| Member { port, weight: 1 }).collect();
            let plan = GroupPlan { name: "g".into(), choice: Choice::Flow, key: None, members, is_ip: false };
            let names: Vec<String> = (0..n).map(|port| format!("{begin}{port}")).collect();
            let group = Group::new(&plan, &names, None, &vec![true; usize::from(n)]);
            let wanted = 1.0 / f64::from(n);
            // Four times what chance differs by.
            let most = 4.0 * (wanted * (1.0 - wanted) / SLOTS as f64).sqrt();
            for port in 0..n {
                let share = share(&group, port);
                assert!((share - wanted).abs() < most, "{begin}{port} of {n} has {share}");
            }
        }
    }
}
