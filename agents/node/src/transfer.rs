//! Options of both programs that send a byte stream: `send` over the kernel's TCP and `endpoint send` over the research
//! stack.

use std::net::SocketAddr;

/// A transfer of a seeded byte stream.
#[derive(clap::Args)]
pub struct Transfer {
    /// Receiver, as ADDRESS:PORT
    #[arg(long)]
    pub to: SocketAddr,
    /// Seed of the byte stream, the same as the receiver's
    #[arg(long)]
    pub seed: u64,
    /// Bytes to send; without it, an endless stream
    #[arg(long)]
    pub bytes: Option<u64>,
    /// When to connect, in nanoseconds of CLOCK_MONOTONIC; without it, at once
    #[arg(long, value_name = "NS")]
    pub start_at_ns: Option<u64>,
    /// When to stop, in nanoseconds of CLOCK_MONOTONIC; the connection is reset then
    #[arg(long, value_name = "NS")]
    pub stop_at_ns: Option<u64>,
}
