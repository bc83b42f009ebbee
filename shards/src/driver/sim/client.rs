//! The other side of a simulated connection, in the hand of a test.

use super::net::{End, SimNet, SocketId};

/// A client's end of a simulated connection. Dropping it closes the connection.
#[derive(Debug)]
pub struct SimClient {
    net: SimNet,
    id: SocketId,
}

impl SimNet {
    /// Connects to a listener. Bytes may be written at once; a refused connection ends with [`End::Rst`].
    pub(crate) fn connect(&self, port: u16) -> SimClient {
        let id = self.open(true);
        self.connect_from(id, port);
        SimClient { net: self.clone(), id }
    }
}

impl SimClient {
    /// Sends bytes. They are on their way when it returns; a client is never held back.
    pub fn write(&self, bytes: &[u8]) {
        self.net.send(self.id, bytes);
    }

    /// What has arrived since the last read.
    pub fn read(&self) -> Vec<u8> {
        self.net.pump();
        self.net.read_all(self.id)
    }

    /// Everything that has arrived so far.
    pub fn received(&self) -> Vec<u8> {
        self.net.pump();
        self.net.history(self.id)
    }

    /// Sends FIN: no more will be written.
    pub fn finish(&self) {
        self.net.finish(self.id);
    }

    /// Sends RST.
    pub fn reset(&self) {
        self.net.reset(self.id);
    }

    /// How the server's direction ended, if it has.
    pub fn end(&self) -> Option<End> {
        self.net.pump();
        self.net.end(self.id)
    }

    /// Whether the server's direction has ended.
    pub fn is_closed(&self) -> bool {
        self.end().is_some()
    }

    /// Most bytes that may be on their way and unread: 0 blocks the server's sends. A client that never called
    /// this takes everything.
    pub fn set_receive_window(&self, bytes: usize) {
        self.net.set_window(self.id, Some(bytes));
    }

    /// The client's port, as the server sees it.
    pub fn local_port(&self) -> u16 {
        self.net.ports(self.id).0
    }
}

impl Drop for SimClient {
    fn drop(&mut self) {
        self.net.close(self.id);
    }
}
