use crate::story::*;

#[test]
fn w1_a_pod_starts_and_goes_with_its_file() {
    let mut w = node();
    w.file("web", ONE);
    w.run(2);
    assert_eq!(w.said(), ["RunSandbox web#0", "CreateContainer web/main#0", "StartContainer web/main#0"]);
    assert_eq!(w.shown("web"), "Running main#0:running");
    w.remove("web");
    w.run(2);
    assert_eq!(w.said(), ["StopContainer web/main#0 30000ms", "StopSandbox web#0", "RemoveSandbox web#0"]);
    assert_eq!(w.shown("web"), "");
    w.assert_clean();
}
