//! Fetches the file and prints its size.

use std::{env, io::Read, net::TcpStream};

fn main() -> std::io::Result<()> {
    let words: Vec<String> = env::args().collect();
    let mut file = Vec::new();
    TcpStream::connect(format!("{}:{}", words[1], words[2]))?.read_to_end(&mut file)?;
    println!("{{\"bytes\": {}}}", file.len());
    Ok(())
}
