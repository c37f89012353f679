//! Executes `ALTER LINK`: applies the running program with another queue at the link.

use super::{Refusal, Running, lock, refused_by, refused_in_words};
use std::time::Instant;
use weft_api::{AtFault, QueryResult, Refused};
use weft_control::alter::{Alter, AlterError};
use weft_engine::report::NodeStats;

impl Running {
    /// Executes an ALTER LINK.
    pub(super) fn alter(&self, text: &str) -> Result<Vec<QueryResult>, Refusal> {
        let version = || lock(&self.parts.control).compiler.version();
        let refuse = |why| match why {
            AlterError::Text(text) => refused_in_words(&text, version()),
            AlterError::Queue(unknown, sources) => {
                let refused = refused_by(&[*unknown], &sources, AtFault::Program);
                Refusal::Refused(Refused { version: version(), ..refused })
            }
        };
        let alter = Alter::of(text).map_err(refuse)?;
        let program = self.program();
        let altered = {
            let control = lock(&self.parts.control);
            alter.apply_to(program, &control.network, &control.sources)
        };
        let altered = altered.map_err(refuse)?;
        let begun = Instant::now();
        let mut checked = self.check(&altered.program);
        if checked.accepted.is_none() {
            altered.point_at_statement(&mut checked);
        }
        let before = self.swaps(&alter.link);
        let applied = self.apply_checked(checked, altered.program, begun, false, "a query")?;
        let after = self.swaps(&alter.link);
        // Packets come and go meanwhile, so the link itself counted at the moment of the change.
        let (kept, refused) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        let columns = ["link", "queue", "kept", "refused", "version"].map(str::to_owned).into();
        let row = vec![
            alter.link.as_str().into(),
            alter.queue.as_str().into(),
            kept.into(),
            refused.into(),
            applied.version.into(),
        ];
        let visible_ms = applied.total_ms;
        Ok(vec![QueryResult { columns, rows: vec![row], visible_ms, ..QueryResult::default() }])
    }

    /// The number of packets that changes have kept in a link, and that new queues refused.
    fn swaps(&self, name: &str) -> (u64, u64) {
        let Some(NodeStats { stats, packets, .. }) = self.stats() else { return (0, 0) };
        let of_port =
            packets.and_then(|packets| packets.links.into_iter().find(|link| link.plan.name == name));
        if let Some(link) = of_port {
            return (link.stats.swap_kept, link.stats.swap_overflow);
        }
        let of_calls = stats.call_queues.iter().find(|link| link.name == name);
        of_calls.map_or((0, 0), |link| (link.swap_kept, link.swap_overflow))
    }
}
