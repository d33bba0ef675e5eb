//! Passwords in the Secret Service of a desktop (GNOME's keyring, KWallet, KeePassXC), over D-Bus:
//! org.freedesktop.secrets. They cross the bus encrypted.

mod dh;

use std::io::{self, ErrorKind};
use std::time::Duration;

use frevo_auth::Zeroizing;
use frevo_crypto::{hkdf_key, open_cbc, seal_cbc};
use frevo_discovery::dbus::{Body, Bus, Marshal, Method, Reply};

const NAME: &str = "org.freedesktop.secrets";
const ROOT: &str = "/org/freedesktop/secrets";
const SERVICE: &str = "org.freedesktop.Secret.Service";
const COLLECTION: &str = "org.freedesktop.Secret.Collection";
const ITEM: &str = "org.freedesktop.Secret.Item";
const PROMPT: &str = "org.freedesktop.Secret.Prompt";

/// The algorithm of a session.
const ALGORITHM: &str = "dh-ietf1024-sha256-aes128-cbc-pkcs7";

/// The path that stands for nothing.
const NOTHING: &str = "/";

/// Time for a user to unlock a keyring.
const PROMPT_TIME: Duration = Duration::from_secs(120);

/// A session with the Secret Service.
pub(super) struct SecretService {
    bus: Bus,
    /// The path of the session.
    session: String,
    key: Zeroizing<[u8; 16]>,
}

fn invalid() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "its answer is not valid")
}

/// The attributes by which a password is found.
fn attributes(w: &mut Marshal, server: &str, user: &str) {
    let all = [("xdg:schema", "org.frevo.Login"), ("server", server), ("user", user)];
    w.array(8, |w| {
        for (name, value) in all {
            w.align(8).string(name).string(value);
        }
    });
}

/// A method of an object of the Secret Service.
const fn method<'a>(path: &'a str, interface: &'a str, member: &'a str) -> Method<'a> {
    Method { destination: NAME, path, interface, member }
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

impl SecretService {
    /// Opens a session.
    ///
    /// # Errors
    /// When there is no bus, no service, or no agreement on a key.
    pub(super) fn open() -> io::Result<Self> {
        let mut bus = Bus::session()?;
        let private = dh::Key::new(&random()?);
        let body = Body::of("sv", |w| {
            w.string(ALGORITHM).variant("ay").byte_array(&private.public());
        });
        let reply = bus.ask(method(ROOT, SERVICE, "OpenSession"), &body)?;
        let mut r = reply.arguments("vo").ok_or_else(invalid)?;
        let public = r.variant().filter(|kind| *kind == "ay").and_then(|_| r.byte_array());
        let shared = public.and_then(|public| private.agree(public)).ok_or_else(invalid)?;
        let session = r.string().ok_or_else(invalid)?.to_owned();
        Ok(Self { bus, session, key: hkdf_key(&*shared) })
    }

    fn ask(&mut self, path: &str, interface: &str, member: &str, body: &Body) -> io::Result<Reply> {
        self.bus.ask(method(path, interface, member), body)
    }

    /// Has the user do what a prompt asks for. Fails when the user dismisses it.
    fn prompt(&mut self, path: &str) -> io::Result<()> {
        if path == NOTHING {
            return Ok(());
        }
        let rule = format!("type='signal',interface='{PROMPT}',member='Completed',path='{path}'");
        let bus = "org.freedesktop.DBus";
        let body = Body::of("s", |w| {
            w.string(&rule);
        });
        let add_match = Method {
            destination: bus,
            path: "/org/freedesktop/DBus",
            interface: bus,
            member: "AddMatch",
        };
        self.bus.ask(add_match, &body)?;
        let body = Body::of("s", |w| {
            w.string("");
        });
        self.ask(path, PROMPT, "Prompt", &body)?;
        let done = self.bus.signal(path, PROMPT_TIME)?;
        // The signal's arguments are the flag `dismissed` and a result, whose type depends on the
        // prompt.
        let dismissed = done.arguments("bv").and_then(|mut r| r.uint32());
        match dismissed {
            Some(0) => Ok(()),
            Some(_) => {
                Err(io::Error::new(ErrorKind::PermissionDenied, "the keyring was not unlocked"))
            }
            None => Err(invalid()),
        }
    }

    fn unlock(&mut self, object: &str) -> io::Result<()> {
        let body = Body::of("ao", |w| {
            w.array(4, |w| {
                w.string(object);
            });
        });
        let reply = self.ask(ROOT, SERVICE, "Unlock", &body)?;
        let mut r = reply.arguments("aoo").ok_or_else(invalid)?;
        r.strings().ok_or_else(invalid)?;
        let prompt = r.string().ok_or_else(invalid)?.to_owned();
        self.prompt(&prompt)
    }

    /// Stores a password in the user's default collection, in place of an earlier one.
    pub(super) fn store(&mut self, server: &str, user: &str, password: &str) -> io::Result<()> {
        let body = Body::of("s", |w| {
            w.string("default");
        });
        let collection = self.bus.call(NAME, ROOT, SERVICE, "ReadAlias", &body)?;
        if collection == NOTHING || collection.is_empty() {
            return Err(io::Error::new(ErrorKind::NotFound, "there is no default keyring"));
        }
        self.unlock(&collection)?;
        let iv = random()?;
        let sealed = seal_cbc(&self.key, &iv, password.as_bytes());
        let session = self.session.clone();
        let body = Body::of("a{sv}(oayays)b", |w| {
            w.array(8, |w| {
                let label = format!("Frevo: smb://{user}@{server}");
                w.align(8).string("org.freedesktop.Secret.Item.Label").variant("s").string(&label);
                w.align(8).string("org.freedesktop.Secret.Item.Attributes").variant("a{ss}");
                attributes(w, server, user);
            });
            w.align(8).string(&session).byte_array(&iv).byte_array(&sealed).string("text/plain");
            w.uint32(1);
        });
        let reply = self.ask(&collection, COLLECTION, "CreateItem", &body)?;
        let mut r = reply.arguments("oo").ok_or_else(invalid)?;
        r.string().ok_or_else(invalid)?;
        let prompt = r.string().ok_or_else(invalid)?.to_owned();
        self.prompt(&prompt)
    }

    /// The items of a logon; locked ones are unlocked.
    fn items(&mut self, server: &str, user: &str) -> io::Result<Vec<String>> {
        let body = Body::of("a{ss}", |w| attributes(w, server, user));
        let reply = self.ask(ROOT, SERVICE, "SearchItems", &body)?;
        let mut r = reply.arguments("aoao").ok_or_else(invalid)?;
        let mut items = r.strings().ok_or_else(invalid)?;
        for locked in r.strings().ok_or_else(invalid)? {
            self.unlock(&locked)?;
            items.push(locked);
        }
        Ok(items)
    }

    /// The password of a logon; None if the service has none.
    pub(super) fn find(
        &mut self,
        server: &str,
        user: &str,
    ) -> io::Result<Option<Zeroizing<String>>> {
        let Some(item) = self.items(server, user)?.into_iter().next() else { return Ok(None) };
        let session = self.session.clone();
        let body = Body::of("o", |w| {
            w.string(&session);
        });
        let reply = self.ask(&item, ITEM, "GetSecret", &body)?;
        let mut r = reply.arguments("(oayays)").ok_or_else(invalid)?;
        r.string().ok_or_else(invalid)?;
        let iv = r.byte_array().and_then(|iv| <[u8; 16]>::try_from(iv).ok());
        let (iv, sealed) = (iv.ok_or_else(invalid)?, r.byte_array().ok_or_else(invalid)?);
        let password = open_cbc(&self.key, &iv, sealed).ok_or_else(invalid)?;
        let password = core::str::from_utf8(&password).map_err(|_| invalid())?;
        Ok(Some(Zeroizing::new(password.to_owned())))
    }

    /// Removes the password of a logon.
    pub(super) fn remove(&mut self, server: &str, user: &str) -> io::Result<()> {
        for item in self.items(server, user)? {
            let prompt = self.bus.call(NAME, &item, ITEM, "Delete", &Body::default())?;
            self.prompt(&prompt)?;
        }
        Ok(())
    }
}
