// node peer.js PACKAGE [refused]: a client of npm against the server in SMB_*. NODE_PATH has the packages.
// With `refused`, the server must refuse its logon.
// Prints `ok|FAIL NAME SECONDS [REASON]` per check.
'use strict';
const assert = require('node:assert');
const { SMB_ADDR, SMB_PORT, SMB_SHARE, SMB_USER, SMB_PASS } = process.env;

// The test bytes: byte i is i * 7 + i / 256.
function pattern(size) {
  const bytes = Buffer.alloc(size);
  for (let i = 0; i < size; i++) bytes[i] = (i * 7 + (i >> 8)) & 255;
  return bytes;
}

// The reason in one line. One family of clients throws the whole answer of the server.
function reason(error) {
  const status = error?.header?.status;
  if (status !== undefined) return `status 0x${(status >>> 0).toString(16)}`;
  return `${error?.code ?? ''} ${error?.message ?? error}`.replaceAll(/\s+/g, ' ').trim();
}

async function within(seconds, work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${seconds} s`)), seconds * 1000);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function check(name, work) {
  const began = performance.now();
  const seconds = () => ((performance.now() - began) / 1000).toFixed(2);
  try {
    await within(20, work());
    console.log(`ok ${name} ${seconds()}`);
  } catch (error) {
    console.log(`FAIL ${name} ${seconds()} ${reason(error)}`);
  }
}

async function collected(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function sent(stream, bytes) {
  return new Promise((resolve, reject) => {
    stream.on('error', reject);
    stream.on('close', resolve);
    stream.on('finish', () => setTimeout(resolve, 500));
    stream.end(bytes);
  });
}

// @marsaud/smb2 and its fork v9u-smb2: paths with backslashes, one connection for one share. Their streams
// close a file twice and fail at each server, and a folder that was listed stays open.
function marsaud(SMB2, password) {
  const client = new SMB2({
    share: `\\\\${SMB_ADDR}\\${SMB_SHARE}`,
    port: Number(SMB_PORT),
    domain: '',
    username: SMB_USER,
    password,
    autoCloseTimeout: 0,
  });
  return {
    list: (path) => client.readdir(path),
    write: (path, bytes) => client.writeFile(path, bytes, { flag: 'w' }),
    read: (path) => client.readFile(path),
    rename: (from, to) => client.rename(from, to),
    unlink: (path) => client.unlink(path),
    mkdir: (path) => client.mkdir(path),
    rmdir: (path) => client.rmdir(path),
    exists: (path) => client.exists(path),
    size: async (path) => (await client.stat(path)).size,
    isDirectory: async (path) => (await client.stat(path)).isDirectory(),
    truncate: (path, size) => client.truncate(path, size),
    close: async () => client.disconnect(),
  };
}

// node-smb2 and its origin @awo00/smb2: a client has sessions, and they have trees. A name in a list begins
// with `./`.
const slashed = (path) => path.replaceAll('\\', '/');
const bare = (entry) => entry.filename.replace(/^\.?\//, '');

async function awo(library, password) {
  const client = new library.Client(SMB_ADDR, { port: Number(SMB_PORT) });
  const session = await client.authenticate({ domain: '', username: SMB_USER, password, forceNtlmVersion: 'v2' });
  const tree = await session.connectTree(SMB_SHARE);
  const entries = async (path) => {
    const found = await tree.readDirectory(path === '' ? '/' : slashed(path));
    return found.filter((one) => bare(one) !== '.' && bare(one) !== '..');
  };
  const entry = async (path) =>
    (await entries('')).find((one) => bare(one) === path);
  return {
    list: async (path) => {
      return (await entries(path)).map((one) => bare(one));
    },
    write: (path, bytes) => tree.createFile(slashed(path), bytes),
    read: (path) => tree.readFile(slashed(path)),
    rename: (from, to) => tree.renameFile(slashed(from), slashed(to)),
    unlink: (path) => tree.removeFile(slashed(path)),
    mkdir: (path) => tree.createDirectory(slashed(path)),
    rmdir: (path) => tree.removeDirectory(slashed(path)),
    exists: (path) => tree.exists(slashed(path)),
    size: async (path) => Number((await entry(path)).fileSize),
    isDirectory: async (path) => (await entry(path)).type === 'Directory',
    reader: (path) => tree.createFileReadStream(slashed(path)),
    writer: (path) => tree.createFileWriteStream(slashed(path)),
    watch: (told) => tree.watch(told),
    close: () => client.close(),
  };
}

const FAMILIES = { '@marsaud/smb2': marsaud, 'v9u-smb2': marsaud, 'node-smb2': awo, '@awo00/smb2': awo };
const name = process.argv[2];
const library = require(name);
const connected = async (password) => FAMILIES[name](library.default ?? library, password);

// The client says LOGON_FAILURE.
const logonFails = async () => {
  const logon = (async () => (await connected(SMB_PASS)).list(''))();
  await assert.rejects(within(10, logon), (error) => /LOGON_FAILURE|0xc000006d/.test(reason(error)));
};

async function checks() {
  let share;
  await check('login', async () => {
    share = await connected(SMB_PASS);
    await share.list('');
  });
  if (share === undefined) return;
  await check('write-read', async () => {
    for (const size of [1, 4096, 65_537, 1_000_001]) {
      await share.write('moved.bin', pattern(size));
      assert((await share.read('moved.bin')).equals(pattern(size)), `${size} bytes differ`);
      assert.equal(await share.size('moved.bin'), size);
      await share.unlink('moved.bin');
    }
  });
  await check('empty', async () => {
    await share.write('empty.bin', Buffer.alloc(0));
    assert.equal((await share.read('empty.bin')).length, 0);
    await share.unlink('empty.bin');
  });
  await check('list', async () => {
    await share.mkdir('listed');
    assert(await share.isDirectory('listed'));
    const wanted = [];
    for (let i = 0; i < 60; i++) wanted.push(`näme ${String(i).padStart(3, '0')}`);
    for (const one of wanted) await share.write(`listed\\${one}`, Buffer.from(one));
    assert.deepEqual((await share.list('listed')).sort(), wanted);
    for (const one of wanted) await share.unlink(`listed\\${one}`);
    assert.deepEqual(await share.list('listed'), []);
  });
  await check('folders', async () => {
    await share.mkdir('made');
    assert((await share.list('')).includes('made'));
    await share.rmdir('made');
    assert(!(await share.list('')).includes('made'));
  });
  await check('rename', async () => {
    await share.write('before', Buffer.from('text'));
    await share.rename('before', 'after');
    assert.equal((await share.read('after')).toString(), 'text');
    assert(!(await share.list('')).includes('before'));
    await share.unlink('after');
  });
  await check('exists', async () => {
    await share.write('present', Buffer.from('text'));
    assert.equal(await share.exists('present'), true);
    assert.equal(await share.exists('absent'), false);
    assert.equal(await share.exists('absent\\below'), false);
    await share.unlink('present');
    assert.equal(await share.exists('present'), false);
  });
  await check('absent', async () => {
    await assert.rejects(within(10, share.read('absent')));
  });
  await check('not-empty', async () => {
    await share.mkdir('full');
    await share.write('full\\file', Buffer.from('text'));
    await assert.rejects(within(10, share.rmdir('full')));
    await share.unlink('full\\file');
    await share.rmdir('full');
  });
  if (share.writer) {
    await check('streams', async () => {
      const bytes = pattern(300_001);
      await sent(await share.writer('streamed'), bytes);
      assert((await collected(await share.reader('streamed'))).equals(bytes));
      await share.unlink('streamed');
    });
  }
  if (share.truncate) {
    await check('truncate', async () => {
      await share.write('cut', pattern(5000));
      await share.truncate('cut', 77);
      assert((await share.read('cut')).equals(pattern(77)));
      await share.unlink('cut');
    });
  }
  if (share.watch) {
    await check('watch', async () => {
      let told;
      const change = new Promise((resolve) => { told = resolve; });
      const end = await share.watch(told);
      await share.write('watched', Buffer.from('text'));
      await within(10, change);
      await within(5, end());
      await share.unlink('watched');
    });
  }
  await check('left', () => share.write(`left by ${name.replace('/', ' ')}.bin`, pattern(3_000_001)));
  await check('wrong-password', async () => {
    await assert.rejects(within(10, (async () => (await connected('wrong')).list(''))()));
  });
  await within(5, share.close()).catch(() => {});
}

process.on('uncaughtException', (error) => console.log(`FAIL uncaught 0.00 ${reason(error)}`));
process.on('unhandledRejection', (error) => console.log(`FAIL uncaught 0.00 ${reason(error)}`));
(process.argv[3] === 'refused' ? check('refused', logonFails) : checks()).finally(() => process.exit(0));
