//! Whole node lives by chance: a seed decides which manifests come, change and go, how containers end, what goes wrong and
//! when the engine is killed. Then the faults stop, and what runs must be what is desired.

use crate::runtime::Life;
use crate::story::{IMAGE, pod};
use crate::world::{Chaos, S, World, alive, config};
use std::rc::Rc;
use std::time::Duration;
use wherry::api::names::Uid;
use wherry::api::pod::Pod;
use wherry::api::time::Wall;
use wherry::engine::effect::RuntimeCall;
use wherry::engine::effect::TimerKey;
use wherry::engine::event::Event;
use wherry::engine::rng::Rng;

/// The manifests that may come: by file, in versions.
pub struct Pool {
    files: Vec<(String, Vec<Rc<Pod>>)>,
}

impl Pool {
    pub fn new() -> Pool {
        let one = "containers: [{name: main, image: 'busybox:1.35'}]";
        let two = "containers: [{name: main, image: 'busybox:1.35'}, {name: side, image: 'other:1'}]";
        let specs = [
            one.to_string(),
            format!("terminationGracePeriodSeconds: 3, {two}"),
            format!("restartPolicy: OnFailure, {two}"),
            format!("restartPolicy: Never, terminationGracePeriodSeconds: 1, {one}"),
            format!("activeDeadlineSeconds: 40, terminationGracePeriodSeconds: 5, {one}"),
            format!("restartPolicy: OnFailure, hostNetwork: true, terminationGracePeriodSeconds: 10, {one}"),
        ];
        let versions = |path: &str, name: &str, uid: &str, from: usize, n: usize| {
            let of = |i: usize| pod(path, name, uid, &specs[(from + i) % specs.len()]);
            (path.to_string(), (0..n).map(of).collect::<Vec<_>>())
        };
        Pool {
            files: vec![
                versions("/m/a.yaml", "a", "", 0, 6),
                versions("/m/b.yaml", "b", "", 1, 3),
                versions("/m/c.yaml", "c", "fixed-c", 0, 6),
                // The names of others, and a UID that is another's too.
                versions("/m/d.yaml", "a", "", 2, 2),
                versions("/m/e.yaml", "e", "fixed-c", 3, 2),
                versions("/m/f.yaml", "b", "fixed-f", 0, 2),
            ],
        }
    }
}

pub fn life(chaos: &mut Chaos) -> Life {
    let ends = match chaos.below(4) {
        0 => Some((Duration::from_millis(chaos.below(30_000)), if chaos.below(3) == 0 { 0 } else { 3 })),
        _ => None,
    };
    let on_term = match chaos.below(4) {
        0 => None,
        1 => Some((Duration::from_millis(chaos.below(8000)), 0)),
        _ => Some((Duration::from_millis(chaos.below(50)), 143)),
    };
    Life { ends, on_term, cannot_start: chaos.below(20) == 0 }
}

/// One node's life; the world as it ended, and what was wrong.
pub fn play(pool: &Pool, seed: u64, tell: bool) -> (World, Result<(), String>) {
    let mut c = config();
    c.request_timeout = Duration::from_secs(8);
    c.pull_timeout = Duration::from_secs(20);
    c.max_restart_backoff = Duration::from_secs(40);
    c.seed = seed;
    let mut rng = Rng::new(seed.wrapping_mul(0x5851_F42D_4C95_7F2D));
    c.parallel_starts = 1 + (rng.draw() % 4) as usize;
    c.parallel_reads = 1 + (rng.draw() % 4) as usize;
    let mut w = World::new(c);
    let faults = [0, 10, 60, 200][(rng.draw() % 4) as usize];
    w.checks.strict = faults == 0;
    w.chaos = Some(Chaos { rng, faults, calm: false });
    w.pidfds = !seed.is_multiple_of(3);
    if tell {
        w.history = Some(Vec::new());
    }
    w.runtime.images.insert(IMAGE.into());
    add_foreign(&mut w);
    w.start();
    let result = live(&mut w, pool).and_then(|()| settle(&mut w));
    (w, result)
}

/// Pods of somebody else in the same runtime (W21).
fn add_foreign(w: &mut World) {
    let pod = pod("/x", "a", "foreign", crate::story::ONE);
    let call = RuntimeCall::RunSandbox { pod, attempt: 0 };
    w.runtime.call(&call, Wall(1), |_| Life::FOREVER);
    for s in w.runtime.sandboxes.values_mut() {
        s.owner = Some("root-2".into());
    }
}

fn violated(w: &World) -> Result<(), String> {
    w.checks.violation.clone().map_or(Ok(()), Err)
}

fn live(w: &mut World, pool: &Pool) -> Result<(), String> {
    let actions = 8 + below(w, 40);
    for _ in 0..actions {
        act(w, pool);
        let wait = match below(w, 4) {
            0 => below(w, 50),
            1 | 2 => below(w, 1500),
            _ => below(w, 15_000),
        };
        w.run_ms(wait);
        violated(w)?;
    }
    Ok(())
}

fn below(w: &mut World, n: u64) -> u64 {
    w.chaos.as_mut().map_or(0, |c| c.below(n))
}

fn act(w: &mut World, pool: &Pool) {
    match below(w, 24) {
        0..=8 => change_files(w, pool, 1),
        9 => change_files(w, pool, 3),
        10..=12 => {
            w.kill_engine();
            let away = below(w, 4000);
            w.run_ms(away);
            w.start();
        }
        13 => {
            w.runtime_down();
            let away = below(w, 5000) * crate::world::MS;
            w.runtime_up_in(away);
        }
        14..=16 => {
            let running: Vec<String> =
                w.runtime.containers.values().filter(|c| c.runs()).map(|c| c.id.clone()).collect();
            if !running.is_empty() {
                let i = below(w, running.len() as u64) as usize;
                let code = if below(w, 3) == 0 { 0 } else { 137 };
                w.exit(&running[i], code);
            }
        }
        17 | 18 => {
            let ours = w.runtime.sandboxes.values().filter(|s| s.ready && s.uid.as_str() != "foreign");
            let ids: Vec<String> = ours.map(|s| s.id.clone()).collect();
            if !ids.is_empty() {
                let i = below(w, ids.len() as u64) as usize;
                w.kill_sandbox(&ids[i]);
            }
        }
        19 => {
            // The clock is set: by seconds, or by decades.
            let by = below(w, 2 * 20_000_000) as i64 - 20_000_000;
            let unit = if below(w, 2) == 0 { 1_000_000 } else { S as i64 };
            w.wall += by * unit;
        }
        20 => {
            w.runtime.network_ready = !w.runtime.network_ready;
        }
        21 => {
            // Something that ended, removed behind our back.
            let dead: Vec<String> = w.runtime.containers.values().filter(|c| !alive(c)).map(|c| c.id.clone()).collect();
            if !dead.is_empty() {
                let i = below(w, dead.len() as u64) as usize;
                w.runtime.containers.remove(&dead[i]);
                w.checks.tampered = true;
            }
        }
        // What changes nothing when it is due no more often than it comes.
        22 => {
            let uids: Vec<Uid> = w.engine.pods().iter().map(|v| v.pod.uid.clone()).collect();
            for uid in uids {
                w.idempotent(&uid);
                if below(w, 2) == 0 {
                    w.step(Event::Hint { uid });
                }
            }
            w.step(Event::Timer(TimerKey::Relist));
        }
        _ => {
            if w.runtime.images.remove("other:1") {
                return;
            }
            w.runtime.unknown_images = ["other:1".to_string()].into();
        }
    }
}

fn change_files(w: &mut World, pool: &Pool, times: u64) {
    let mut files = w.files.clone();
    for _ in 0..times {
        let i = below(w, pool.files.len() as u64) as usize;
        let (path, versions) = &pool.files[i];
        if files.contains_key(path) && below(w, 3) == 0 {
            files.remove(path);
        } else {
            let v = below(w, versions.len() as u64) as usize;
            files.insert(path.clone(), versions[v].clone());
        }
    }
    w.set_files(files);
}

/// The faults stop; a while later all is as it should be.
fn settle(w: &mut World) -> Result<(), String> {
    w.note(|| "--- from here on all is well".into());
    if let Some(c) = &mut w.chaos {
        c.faults = 0;
        c.calm = true;
    }
    w.runtime.network_ready = true;
    w.runtime.unknown_images.clear();
    w.runtime_up();
    w.run(150);
    violated(w)?;
    // Deadlines: 40 s, and the clock may have been set; those pods end by then.
    let (published, steps) = (w.published, w.steps);
    let pending_calls = w.calls.len();
    w.run(20);
    violated(w)?;
    if w.published != published {
        return Err("something is still shown anew".into());
    }
    if w.calls.len() != pending_calls {
        return Err(format!("calls go on: {:?}", &w.calls[pending_calls..]));
    }
    // Two lists at most a second, their answers, and what is due each minute.
    if w.steps - steps > 20 * 2 + 40 {
        return Err(format!("{} steps in 20 s of idling", w.steps - steps));
    }
    as_desired(w)
}

fn as_desired(w: &World) -> Result<(), String> {
    let mut wanted: Vec<Uid> = Vec::new();
    for view in w.engine.pods() {
        let uid = &view.pod.uid;
        if !view.desired {
            return Err(format!("{uid} is still there"));
        }
        wanted.push(uid.clone());
        let phase = view.status.phase.as_deref().unwrap_or_default();
        let running: Vec<&str> = w.runtime.of(uid).filter(|c| c.runs()).map(|c| c.name.as_str()).collect();
        match phase {
            "Running" => {
                for c in view.pod.containers() {
                    let n = running.iter().filter(|r| **r == c.name).count();
                    let done = view
                        .status
                        .container_statuses
                        .iter()
                        .flatten()
                        .any(|s| s.name == c.name && s.state.as_ref().is_some_and(|s| s.terminated.is_some()));
                    let may_be_done = view.pod.restart_policy() != wherry::api::pod::RestartPolicy::Always;
                    if n != 1 && !(n == 0 && done && may_be_done) {
                        return Err(format!("{n} of {} of {uid} run: {}", c.name, crate::tell::brief(view.status)));
                    }
                }
            }
            "Succeeded" | "Failed" => {
                if !running.is_empty() {
                    return Err(format!("{uid} is {phase} and {running:?} run"));
                }
                let always = view.pod.restart_policy() == wherry::api::pod::RestartPolicy::Always;
                if always && view.pod.active_deadline().is_none() {
                    return Err(format!("{uid} is {phase} and should run"));
                }
            }
            other => return Err(format!("{uid} is {other}: {}", crate::tell::brief(view.status))),
        }
    }
    // Each file's pod is there, or stands behind another of its name or UID.
    for p in w.files.values() {
        let there = w.engine.pod(&p.uid).is_some_and(|v| v.pod.digest == p.digest && v.pod.source == p.source);
        let behind = w.engine.conflicts().iter().any(|c| c.source == p.source);
        if there == behind {
            return Err(format!("{} of {}: there {there}, behind another {behind}", p.uid, p.source.path));
        }
    }
    for s in w.runtime.sandboxes.values() {
        if s.uid.as_str() != "foreign" && !wanted.contains(&s.uid) {
            return Err(format!("sandbox {} of {} is left", s.id, s.uid));
        }
        let ready = w.runtime.sandboxes.values().filter(|o| o.uid == s.uid && o.ready).count();
        if ready > 1 {
            return Err(format!("{ready} sandboxes of {} are ready", s.uid));
        }
    }
    if !w.runtime.sandboxes.values().any(|s| s.uid.as_str() == "foreign" && s.ready) {
        return Err("somebody else's sandbox was stopped".into());
    }
    for c in w.runtime.containers.values() {
        if !wanted.contains(&c.uid) {
            return Err(format!("container {} of {} is left", c.id, c.uid));
        }
    }
    for uid in &wanted {
        let mut of: Vec<(&str, u32)> = w.runtime.of(uid).map(|c| (c.name.as_str(), c.attempt)).collect();
        of.sort_unstable();
        // (A pod that ended keeps what it had then.)
        if of.len() > 2 * 3 {
            return Err(format!("dead containers pile up: {of:?}"));
        }
    }
    let keys: Vec<String> = wanted.iter().map(|uid| format!("pods/{uid}")).collect();
    if let Some(key) = w.records.keys().find(|k| !keys.contains(k)) {
        return Err(format!("record {key} is left"));
    }
    // (A directory made just before a kill, ahead of its record, is the next start's to find.)
    if let Some(uid) = w.directories.iter().find(|d| w.life == 0 && !wanted.contains(d)) {
        return Err(format!("the directory of {uid} is left"));
    }
    let alive: Vec<&String> = w.watched.keys().collect();
    let all = w.runtime.containers.values().filter(|c| c.runs()).count()
        + w.runtime.sandboxes.values().filter(|s| s.ready && s.uid.as_str() != "foreign").count();
    if alive.len() > all {
        return Err(format!("{alive:?} are watched, {all} run"));
    }
    if w.pending_ops() > 1 {
        return Err(format!("{} operations in flight", w.pending_ops()));
    }
    let stray: Vec<TimerKey> = w
        .timers()
        .into_iter()
        .filter(|k| !matches!(k, TimerKey::Relist | TimerKey::RuntimeStatus | TimerKey::Pod(_)))
        .chain(w.timers().into_iter().filter(|k| matches!(k, TimerKey::Pod(uid) if !wanted.contains(uid))))
        .collect();
    if !stray.is_empty() {
        return Err(format!("timers are left: {stray:?}"));
    }
    Ok(())
}

/// Plays seeds; the first one that fails is told in full.
pub fn play_all(seeds: std::ops::Range<u64>) {
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let failed = std::sync::Mutex::new(None::<u64>);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let pool = Pool::new();
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let stop = failed.lock().is_ok_and(|f| f.is_some_and(|f| f < seed));
                    if seed >= seeds.end || stop {
                        return;
                    }
                    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(&pool, seed, false).1));
                    if !matches!(result, Ok(Ok(())))
                        && let Ok(mut f) = failed.lock()
                    {
                        *f = Some(f.map_or(seed, |old: u64| old.min(seed)));
                    }
                }
            });
        }
    });
    if let Ok(Some(seed)) = failed.into_inner() {
        tell(seed);
    }
}

/// Plays one seed with its history; panics if it fails.
pub fn tell(seed: u64) {
    let (mut w, result) = play(&Pool::new(), seed, true);
    if let Err(why) = result {
        let history = w.history.take().unwrap_or_default();
        println!("{}", history.join("\n"));
        panic!(
            "seed {seed} ({} lines above): {why}\nreplay: WHERRY_SEED={seed} cargo test --test simulation seeds",
            history.len()
        );
    }
}
