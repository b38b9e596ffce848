//! A terminal for a command: the command has it as its controlling terminal, and the test reads and types.

use crate::support::agent::patience;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub struct Pty {
    pub child: Child,
    user: File,
    /// Keeps the terminal open, and shows its mode.
    terminal: File,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Pty {
    /// Starts `command` in a terminal of this size.
    pub fn start(command: &Command, columns: u16, rows: u16) -> Pty {
        let user: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("openpt");
        grantpt(&user).expect("grantpt");
        unlockpt(&user).expect("unlockpt");
        let path = ptsname(&user, Vec::new()).expect("ptsname").into_string().expect("a path");
        let noctty = OpenptFlags::NOCTTY.bits() as i32;
        let terminal = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(path).expect("the terminal");
        let user = File::from(user);
        resize(&user, columns, rows);
        // setsid makes the terminal at stdin the controlling one, so that a resize sends SIGWINCH.
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        let end = || terminal.try_clone().expect("a descriptor");
        let child = session.stdin(end()).stdout(end()).stderr(end()).spawn().expect("setsid");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (of_thread, mut reader) = (shown.clone(), user.try_clone().expect("a descriptor"));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends with an error when nobody has the terminal open.
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                of_thread.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Pty { child, user, terminal, shown }
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        resize(&self.user, columns, rows);
    }

    pub fn type_in(&mut self, keys: &str) {
        self.user.write_all(keys.as_bytes()).expect("a terminal");
    }

    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until the terminal has shown this text.
    pub fn expect(&self, text: &str) {
        let end = Instant::now() + patience(60);
        while !self.shown().contains(text) {
            assert!(Instant::now() < end, "{text:?} is not shown: {:?}", self.shown());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The keys are processed as usual: lines, echo, and signals for Ctrl-C.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.terminal).expect("a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Waits for the end of the command. Returns its exit code.
    pub fn end(&mut self) -> Option<i32> {
        self.child.wait().expect("a child").code()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn resize(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a size");
}
