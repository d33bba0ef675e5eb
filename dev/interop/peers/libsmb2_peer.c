/* libsmb2 against the server in SMB_*; the argument is `plain` or `sealed`, which asks for encryption.
 *
 * Does what the library's examples do, each as a check: `ok|FAIL NAME SECONDS [REASON]`.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <smb2/smb2.h>

#include <smb2/libsmb2.h>
#include <smb2/libsmb2-raw.h>

#include <smb2/libsmb2-dcerpc-srvsvc.h>

#define MUST(condition) do { if (!(condition)) return #condition; } while (0)

static struct smb2_context *smb2;
static int sealed;

/* Byte i is i * 7 + i / 256. */
static uint8_t *pattern(size_t size) {
    uint8_t *bytes = malloc(size + 1);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(i * 7 + (i >> 8));
    return bytes;
}

static const char *store(const char *name, size_t size) {
    uint8_t *bytes = pattern(size);
    struct smb2fh *file = smb2_open(smb2, name, O_WRONLY | O_CREAT | O_TRUNC);
    MUST(file);
    for (size_t at = 0; at < size;) {
        int n = smb2_pwrite(smb2, file, bytes + at, size - at < 65536 ? size - at : 65536, at);
        MUST(n > 0);
        at += n;
    }
    MUST(smb2_fsync(smb2, file) == 0);
    MUST(smb2_close(smb2, file) == 0);
    free(bytes);
    return NULL;
}

static const char *compare(const char *name, size_t size) {
    uint8_t *wanted = pattern(size), *got = malloc(size + 1);
    struct smb2fh *file = smb2_open(smb2, name, O_RDONLY);
    MUST(file);
    size_t at = 0;
    for (;;) {
        int n = smb2_pread(smb2, file, got + at, size + 1 - at < 65536 ? size + 1 - at : 65536, at);
        MUST(n >= 0);
        if (n == 0) break;
        at += n;
        MUST(at <= size);
    }
    MUST(at == size && memcmp(wanted, got, size) == 0);
    MUST(smb2_close(smb2, file) == 0);
    free(wanted);
    free(got);
    return NULL;
}

static int listed(const char *folder, const char *name, int *count) {
    struct smb2dir *directory = smb2_opendir(smb2, folder);
    int seen = 0;
    if (!directory) return -1;
    for (struct smb2dirent *entry; (entry = smb2_readdir(smb2, directory));) {
        if (!strcmp(entry->name, ".") || !strcmp(entry->name, "..")) continue;
        seen |= !strcmp(entry->name, name);
        if (count) ++*count;
    }
    smb2_closedir(smb2, directory);
    return seen;
}

static struct smb2_context *fresh(const char *password) {
    struct smb2_context *made = smb2_init_context();
    smb2_set_authentication(made, 1); /* NTLMSSP; otherwise the library asks for a ticket. */
    smb2_set_version(made, SMB2_VERSION_ANY3);
    smb2_set_user(made, getenv("SMB_USER"));
    smb2_set_password(made, password);
    smb2_set_security_mode(made, SMB2_NEGOTIATE_SIGNING_ENABLED);
    if (sealed) smb2_set_seal(made, 1);
    return made;
}

static int connect_to(struct smb2_context *made, const char *share) {
    char host[100];
    snprintf(host, sizeof host, "%s:%s", getenv("SMB_ADDR"), getenv("SMB_PORT"));
    return smb2_connect_share(made, host, share, getenv("SMB_USER"));
}

static const char *login(void) {
    smb2 = fresh(getenv("SMB_PASS"));
    MUST(connect_to(smb2, getenv("SMB_SHARE")) == 0);
    MUST(smb2_get_dialect(smb2) == 0x311);
    return NULL;
}

static const char *write_read(void) {
    static const size_t sizes[] = {0, 1, 65536, 3000001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *wrong = store("libsmb2.bin", sizes[i]);
        if (!wrong) wrong = compare("libsmb2.bin", sizes[i]);
        if (wrong) return wrong;
    }
    return NULL;
}

static const char *list(void) {
    char name[64];
    int count = 0;
    MUST(smb2_mkdir(smb2, "listed") == 0);
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "listed/n\xc3\xa4me %02d", i);
        const char *wrong = store(name, 1);
        if (wrong) return wrong;
    }
    MUST(listed("listed", "n\xc3\xa4me 17", &count) == 1 && count == 60);
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "listed/n\xc3\xa4me %02d", i);
        MUST(smb2_unlink(smb2, name) == 0);
    }
    MUST(smb2_rmdir(smb2, "listed") == 0);
    MUST(listed("", "listed", NULL) == 0);
    return NULL;
}

static const char *stat_and_space(void) {
    struct smb2_stat_64 found;
    struct smb2_statvfs space;
    const char *wrong = store("stat", 77);
    if (wrong) return wrong;
    MUST(smb2_stat(smb2, "stat", &found) == 0 && found.smb2_size == 77 && found.smb2_type == SMB2_TYPE_FILE);
    MUST(found.smb2_mtime > 1500000000 && found.smb2_nlink == 1);
    MUST(smb2_stat(smb2, "", &found) == 0 && found.smb2_type == SMB2_TYPE_DIRECTORY);
    MUST(smb2_statvfs(smb2, "", &space) == 0 && space.f_blocks > 0);
    MUST(smb2_stat(smb2, "absent", &found) == -2 /* ENOENT */);
    MUST(smb2_unlink(smb2, "stat") == 0);
    return NULL;
}

static const char *truncated(void) {
    const char *wrong = store("cut", 5000);
    if (wrong) return wrong;
    MUST(smb2_truncate(smb2, "cut", 1234) == 0);
    if ((wrong = compare("cut", 1234))) return wrong;
    struct smb2fh *file = smb2_open(smb2, "cut", O_RDWR);
    struct smb2_stat_64 found;
    MUST(file);
    MUST(smb2_ftruncate(smb2, file, 77) == 0);
    MUST(smb2_fstat(smb2, file, &found) == 0 && found.smb2_size == 77);
    MUST(smb2_close(smb2, file) == 0);
    MUST(smb2_unlink(smb2, "cut") == 0);
    return NULL;
}

static const char *renamed(void) {
    const char *wrong = store("before", 100);
    if (wrong) return wrong;
    MUST(smb2_rename(smb2, "before", "after") == 0);
    MUST(listed("", "before", NULL) == 0);
    if ((wrong = compare("after", 100))) return wrong;
    MUST(smb2_unlink(smb2, "after") == 0);
    return NULL;
}

struct answer { int done, status, seen; };

static void shares(struct smb2_context *from, int status, void *data, void *private) {
    struct answer *answer = private;
    struct srvsvc_NetrShareEnum_rep *reply = data;
    answer->done = 1;
    answer->status = status;
    if (status) return;
    for (uint32_t i = 0; i < reply->ses.ShareInfo.Level1.EntriesRead; i++)
        answer->seen |= !strcmp(reply->ses.ShareInfo.Level1.Buffer->share_info_1[i].netname.utf8, getenv("SMB_SHARE"));
    smb2_free_data(from, reply);
}

static const char *share_list(void) {
    struct answer answer = {0, 0, 0};
    struct smb2_context *pipe = fresh(getenv("SMB_PASS"));
    MUST(connect_to(pipe, "IPC$") == 0);
    MUST(smb2_share_enum_async(pipe, SHARE_INFO_1, shares, &answer) == 0);
    for (time_t end = time(NULL) + 10; !answer.done && time(NULL) < end;) {
        struct pollfd poller = {.fd = smb2_get_fd(pipe), .events = smb2_which_events(pipe)};
        MUST(poll(&poller, 1, 1000) >= 0);
        if (poller.revents) MUST(smb2_service(pipe, poller.revents) >= 0);
    }
    MUST(answer.done && answer.status == 0 && answer.seen);
    smb2_disconnect_share(pipe);
    return NULL;
}

static const char *left(void) {
    return store("left by libsmb2.bin", 3000001);
}

static const char *wrong_password(void) {
    struct smb2_context *other = fresh("wrong");
    MUST(connect_to(other, getenv("SMB_SHARE")) != 0);
    smb2_destroy_context(other);
    return NULL;
}

static void check(const char *name, const char *(*body)(void)) {
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    const char *wrong = body();
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double took = ended.tv_sec - began.tv_sec + (ended.tv_nsec - began.tv_nsec) / 1e9;
    if (wrong)
        printf("FAIL %s %.2f %s: %s\n", name, took, wrong, smb2 ? smb2_get_error(smb2) : "");
    else
        printf("ok %s %.2f\n", name, took);
    fflush(stdout);
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "plain";
    sealed = !strcmp(how, "sealed");
    check("login", login);
    check("write-read", write_read);
    check("list", list);
    check("stat-and-space", stat_and_space);
    check("truncate", truncated);
    check("rename", renamed);
    check("list-shares", share_list);
    check("left", left);
    smb2_disconnect_share(smb2);
    check("wrong-password", wrong_password);
    return 0;
}
