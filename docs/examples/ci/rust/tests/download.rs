//! Client and server over a modem, in virtual time.

use std::{env, process::Command};

#[test]
fn a_download_over_a_modem_ends_in_time() {
    let [server, client] = [env!("CARGO_BIN_EXE_server"), env!("CARGO_BIN_EXE_client")];
    // distribution/ci names the folder that it compares.
    let results = env::var("BACKCHANNEL_RESULTS").unwrap_or("target/lines".to_string());
    let done = Command::new("backchannel")
        .args(["line", "dialup-28.8", "--name", "download", "--seeds", "3", "--results", &results])
        .args(["--server", &format!("{server} {{server}} {{port}}")])
        .args(["--client", &format!("{client} {{server}} {{port}}")])
        .args(["--metric", "size={json: bytes, unit: byte}"])
        .output()
        .expect("backchannel is installed");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let runs: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let runs = runs.as_array().expect("a list");
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!(run["metrics"]["output.size"], 20_000.0);
        assert!(run["metrics"]["completion_time"].as_f64().expect("a number") < 10.0);
    }
}
