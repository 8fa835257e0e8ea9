//! `weir demo` as a user starts it: the main job on real sockets, and outcomes that add up.

use std::process::Command;

#[test]
fn more_than_the_replicas_hold_is_shed_and_every_request_has_one_end() {
    let ran = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["demo", "--for", "2s", "--rate", "200"])
        .output()
        .unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(text.contains("curl -iN http://127.0.0.1:"), "{text}");
    let line = text.lines().find(|line| line.contains(" offered = ")).expect("a summary");
    let counts: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // The fifth number is the status in the sentence.
    let [offered, answered, shed, 503, failed, cancelled] = counts[..] else {
        panic!("not the summary's shape: {line}")
    };
    assert_eq!(offered, answered + shed + failed + cancelled, "{line}");
    assert_eq!(failed, 0, "{line}");
    assert!(answered > 0 && shed > 0, "{line}");
}
