//! TCP, as far as queues see it: senders with congestion control, and receivers that acknowledge.
//!
//! Sequence numbers count segments of one size. There is no handshake, no Nagle algorithm, no delayed acknowledgement
//! and no receive window. It implements loss recovery (RFC 6675, or RFC 6582 without SACK), the retransmission timer
//! (RFC 6298), timestamps (RFC 7323) and congestion control.
//!
//! | file | content |
//! | --- | --- |
//! | `scoreboard` | which segments have arrived, are lost, were resent |
//! | `control` | windows and pacing rates: NewReno, CUBIC, and an algorithm like BBR |
//! | `receiver` | the acknowledgement of each segment |
//! | `rto` | the retransmission timer |
//! | `sender` | the sender |

mod bbr;
mod control;
mod cubic;
mod receiver;
mod rto;
mod scoreboard;
mod sender;

pub use control::Algorithm;
pub(super) use receiver::Receiver;
pub(super) use sender::{Ack, Sender, Stamp};
pub use sender::{SenderSpec, SenderStats};
