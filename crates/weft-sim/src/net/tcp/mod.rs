//! TCP as far as a queue can tell: senders that find the capacity of a path, and receivers that acknowledge.
//!
//! Sequence numbers count segments of one size. There is no handshake, no Nagle, no delayed acknowledgement and no
//! limit of the receiver's window: what is left is loss recovery (RFC 6675, or RFC 6582 without selective
//! acknowledgements), the retransmission timer (RFC 6298), timestamps (RFC 7323) and congestion control.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `scoreboard` | which segments have arrived, are lost, were sent again |
//! | `control` | windows and rates: NewReno, CUBIC, and one like BBR |
//! | `receiver` | the acknowledgement of each segment |
//! | `rto` | when silence means loss |
//! | `sender` | what is sent when |

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
