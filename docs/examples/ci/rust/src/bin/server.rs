//! Sends a file to each client.

use std::{env, io::Write, net::TcpListener};

const SIZE_BYTES: usize = 20_000;

fn main() -> std::io::Result<()> {
    let words: Vec<String> = env::args().collect();
    for connection in TcpListener::bind(format!("{}:{}", words[1], words[2]))?.incoming() {
        connection?.write_all(&[0; SIZE_BYTES])?;
    }
    Ok(())
}
