//! A folder to be served, and the bytes in it. Knows files and the `serve` command alone.

use super::{
    Launch, Server,
    client::{Client, Response},
};
use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

/// `outer/www` is served; `outer/secret.txt` must never be.
#[derive(Debug)]
pub struct Tree {
    _outer: TempDir,
    /// What is served.
    pub www: PathBuf,
}

impl Tree {
    /// With an index, a small file, a folder, and what must not be seen.
    pub fn new() -> Tree {
        let outer = tempfile::tempdir().expect("a folder");
        let www = outer.path().join("www");
        fs::create_dir_all(www.join("bare")).expect("folders");
        fs::write(outer.path().join("secret.txt"), b"SECRET").expect("write");
        let tree = Tree { _outer: outer, www };
        tree.write("index.html", b"<p>index");
        tree.write("file.txt", b"0123456789abcdefghij");
        tree.write("bare/x<y>.txt", b"x");
        tree.write(".env", b"SECRET");
        tree
    }

    /// A file that has rested for an hour.
    pub fn write(&self, name: &str, content: &[u8]) {
        let file = self.create(name, content);
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("set the time");
    }

    /// A file of this moment.
    pub fn create(&self, name: &str, content: &[u8]) -> File {
        let mut file = File::create(self.path(name)).expect("create");
        file.write_all(content).expect("write");
        file
    }

    /// Where a name lies.
    pub fn path(&self, name: &str) -> PathBuf {
        self.www.join(name)
    }

    /// A server of it.
    pub fn serve(&self, driver: &str, flags: &[&str]) -> Server {
        let dir = self.www.display().to_string();
        Launch::server(&["serve", &dir], driver).args(flags).start()
    }
}

/// GET with these field lines, each with its CRLF.
pub fn ask(client: &mut Client, path: &str, fields: &str) -> Response {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
    client.read_response()
}

/// Bytes that no shift and no repetition leaves equal.
#[must_use]
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
