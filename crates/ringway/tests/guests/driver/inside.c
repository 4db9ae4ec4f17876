/*
 * What a test needs inside a guest and busybox lacks:
 *
 *   inside xdp IFACE drop|pass|tx|grow|shrink	an XDP program, until this one is killed
 *   inside xdp IFACE redirect TO
 *   inside member IFACE MAC...		listens to these addresses, until it is killed
 *   inside answer PORT			sends each datagram back, until it is killed
 *   inside hear PORT FILE		writes each datagram to a file, until it is killed
 *   inside ask ADDRESS PORT COUNT	sends so many datagrams, each when the last one has come back
 *   inside load VMLINUX INITRD ARGUMENTS	loads another kernel
 *   inside kexec			starts it at once
 */
#include <arpa/inet.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/kexec.h>
#include <linux/reboot.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static void fail(const char *what)
{
	fprintf(stderr, "inside: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Says that all is set up, and stays. */
static void stay(void)
{
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}

static unsigned int interface(const char *name)
{
	unsigned int index = if_nametoindex(name);

	if (!index)
		fail(name);
	return index;
}

#define LOAD(size, to, from, offset)	{ BPF_LDX | BPF_MEM | (size), to, from, offset, 0 }
#define STORE(size, to, offset, from)	{ BPF_STX | BPF_MEM | (size), to, from, offset, 0 }
#define SET(to, value)			{ BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value }
#define COPY(to, from)			{ BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0 }
#define ADD(to, value)			{ BPF_ALU64 | BPF_ADD | BPF_K, to, 0, 0, value }
#define CALL(function)			{ BPF_JMP | BPF_CALL, 0, 0, 0, function }
#define RETURN				{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 }
/* Drops the frame if @a is above @b, or is not 0. */
#define CHECK(a, b)			{ BPF_JMP | BPF_JLE | BPF_X, a, b, 2, 0 }, SET(0, XDP_DROP), RETURN
#define CHECK_ZERO(a)			{ BPF_JMP | BPF_JEQ | BPF_K, a, 0, 2, 0 }, SET(0, XDP_DROP), RETURN
/* Writes an Ethernet header at @data, which register 6 holds, with the swapped addresses of that at @from. */
#define SWAP(from)                                                                                 \
	LOAD(BPF_W, 3, 6, from), LOAD(BPF_H, 4, 6, (from) + 4), LOAD(BPF_W, 5, 6, (from) + 6),     \
		LOAD(BPF_H, 8, 6, (from) + 10), LOAD(BPF_H, 9, 6, (from) + 12),                    \
		STORE(BPF_W, 6, 0, 5), STORE(BPF_H, 6, 4, 8), STORE(BPF_W, 6, 6, 3),               \
		STORE(BPF_H, 6, 10, 4), STORE(BPF_H, 6, 12, 9)

static void xdp(int count, char **words)
{
	struct bpf_insn drop[] = { SET(0, XDP_DROP), RETURN };
	struct bpf_insn pass[] = { SET(0, XDP_PASS), RETURN };
	struct bpf_insn tx[] = {
		LOAD(BPF_W, 6, 1, 0), LOAD(BPF_W, 7, 1, 4), COPY(2, 6), ADD(2, 14), CHECK(2, 7),
		SWAP(0), SET(0, XDP_TX), RETURN,
	};
	/* The same, with one more Ethernet header. */
	struct bpf_insn grow[] = {
		COPY(9, 1), SET(2, -14), CALL(BPF_FUNC_xdp_adjust_head), CHECK_ZERO(0),
		LOAD(BPF_W, 6, 9, 0), LOAD(BPF_W, 7, 9, 4), COPY(2, 6), ADD(2, 28), CHECK(2, 7),
		SWAP(14), SET(0, XDP_TX), RETURN,
	};
	/* Takes the outer Ethernet header off. */
	struct bpf_insn shrink[] = {
		SET(2, 14), CALL(BPF_FUNC_xdp_adjust_head), CHECK_ZERO(0), SET(0, XDP_PASS), RETURN,
	};
	struct bpf_insn redirect[] = {
		SET(1, count > 2 ? (int)interface(words[2]) : 0), SET(2, 0), CALL(BPF_FUNC_redirect), RETURN,
	};
	const struct {
		const char *name;
		struct bpf_insn *code;
		size_t size;
	} programs[] = {
		{ "drop", drop, sizeof(drop) }, { "pass", pass, sizeof(pass) }, { "tx", tx, sizeof(tx) },
		{ "grow", grow, sizeof(grow) }, { "shrink", shrink, sizeof(shrink) },
		{ "redirect", redirect, sizeof(redirect) },
	};
	union bpf_attr load = { .prog_type = BPF_PROG_TYPE_XDP }, link = { 0 };
	static char log[65536];

	for (size_t at = 0; at < sizeof(programs) / sizeof(*programs); at++) {
		if (strcmp(programs[at].name, words[1]))
			continue;
		load.insns = (uintptr_t)programs[at].code;
		load.insn_cnt = programs[at].size / sizeof(struct bpf_insn);
	}
	load.license = (uintptr_t)"GPL";
	load.log_buf = (uintptr_t)log;
	load.log_size = sizeof(log);
	load.log_level = 1;
	link.link_create.prog_fd = syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof(load));
	if ((int)link.link_create.prog_fd < 0) {
		fputs(log, stderr);
		fail("cannot load the program");
	}
	link.link_create.target_ifindex = interface(words[0]);
	link.link_create.attach_type = BPF_XDP;
	link.link_create.flags = XDP_FLAGS_DRV_MODE;
	if (syscall(SYS_bpf, BPF_LINK_CREATE, &link, sizeof(link)) < 0)
		fail("cannot attach the program");
	stay();
}

static void member(int count, char **words)
{
	int fd = socket(AF_PACKET, SOCK_RAW, 0);

	if (fd < 0)
		fail("socket");
	for (int at = 1; at < count; at++) {
		struct packet_mreq request = { .mr_ifindex = interface(words[0]), .mr_alen = 6 };
		unsigned char *mac = request.mr_address;

		if (sscanf(words[at], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", mac, mac + 1, mac + 2, mac + 3,
			   mac + 4, mac + 5) != 6)
			fail(words[at]);
		request.mr_type = mac[0] & 1 ? PACKET_MR_MULTICAST : PACKET_MR_UNICAST;
		if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof(request)))
			fail(words[at]);
	}
	stay();
}

/* Seconds in which an answer must come: the end of what hangs. An emulated guest may stand still for minutes. */
#define PATIENCE	300

static int datagrams(const char *address, const char *port, struct sockaddr_in *peer)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	memset(peer, 0, sizeof(*peer));
	peer->sin_family = AF_INET;
	peer->sin_port = htons(atoi(port));
	if (fd < 0 || !inet_aton(address, &peer->sin_addr))
		fail(address);
	return fd;
}

/* Receives datagrams. Writes them to a file if there is one, or else sends them back. */
static void receive(const char *port, const char *path)
{
	struct sockaddr_in here, peer;
	int fd = datagrams("0.0.0.0", port, &here), file = -1;
	char data[2048];

	if (bind(fd, (void *)&here, sizeof(here)))
		fail(port);
	if (path && (file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600)) < 0)
		fail(path);
	puts("ready");
	fflush(stdout);
	for (;;) {
		socklen_t size = sizeof(peer);
		ssize_t length = recvfrom(fd, data, sizeof(data), 0, (void *)&peer, &size);

		if (length < 0)
			fail("receive");
		if ((path ? write(file, data, length) : sendto(fd, data, length, 0, (void *)&peer, size)) < 0)
			fail("answer");
	}
}

static void ask(char **words)
{
	struct timeval patience = { .tv_sec = PATIENCE };
	uint32_t count = atoi(words[2]), number, came;
	struct sockaddr_in peer;
	int fd = datagrams(words[0], words[1], &peer);

	if (connect(fd, (void *)&peer, sizeof(peer)) ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
		fail("socket");
	for (number = 0; number < count; number++)
		if (send(fd, &number, sizeof(number), 0) < 0 || recv(fd, &came, sizeof(came), 0) < 0 ||
		    came != number) {
			fprintf(stderr, "question %u: ", number);
			fail("no answer");
		}
}

static void *contents(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY);
	struct stat stat;
	void *memory;

	if (fd < 0 || fstat(fd, &stat))
		fail(path);
	memory = mmap(NULL, stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (memory == MAP_FAILED)
		fail(path);
	*size = stat.st_size;
	return memory;
}

/* Places of what the other kernel finds, in its boot protocol (Documentation/arch/x86/boot.rst, zero-page.rst). */
#define ENTRY		0x90000
#define BOOT_PARAMETERS	0x91000
#define ARGUMENTS	0x92000
#define INITRD		0x10000000

static void put(unsigned char *at, uint64_t value, int bytes)
{
	memcpy(at, &value, bytes);
}

/* Loads an ELF kernel, which begins at its 64-bit entry. */
static void load_kernel(char **words)
{
	static unsigned char boot[4096], code[32] = { 0x48, 0xbe };	/* mov $BOOT_PARAMETERS, %rsi */
	struct kexec_segment segments[KEXEC_SEGMENT_MAX];
	size_t size, initrd_size, number = 0, page = 4096;
	const unsigned char *kernel = contents(words[0], &size);
	const Elf64_Ehdr *head = (const void *)kernel;
	const Elf64_Phdr *parts = (const void *)(kernel + head->e_phoff);
	const void *initrd = contents(words[1], &initrd_size);
	unsigned long long from, to;
	unsigned int ranges = 0;
	char line[256], kind[128];
	FILE *file;

	put(code + 2, BOOT_PARAMETERS, 8);
	memcpy(code + 10, "\x48\xb8", 2);				/* mov $entry, %rax */
	put(code + 12, head->e_entry, 8);
	memcpy(code + 20, "\xff\xe0", 2);				/* jmp *%rax */

	put(boot + 0x1fe, 0xaa55, 2);
	memcpy(boot + 0x202, "HdrS", 4);
	put(boot + 0x206, 0x20c, 2);
	boot[0x210] = 0xff;
	boot[0x211] = 1;
	put(boot + 0x218, INITRD, 4);
	put(boot + 0x21c, initrd_size, 4);
	put(boot + 0x228, ARGUMENTS, 4);
	file = fopen("/proc/iomem", "r");
	while (file && fgets(line, sizeof(line), file) && ranges < 128) {
		unsigned char *entry = boot + 0x2d0 + 20 * ranges;

		if (line[0] == ' ' || sscanf(line, "%llx-%llx : %127[^\n]", &from, &to, kind) != 3)
			continue;
		if (strcmp(kind, "System RAM") && strcmp(kind, "Reserved") && !strstr(kind, "ACPI"))
			continue;
		put(entry, from, 8);
		put(entry + 8, to - from + 1, 8);
		put(entry + 16, !strcmp(kind, "System RAM") ? 1 : strstr(kind, "Tables") ? 3 : 2, 4);
		ranges++;
	}
	boot[0x1e8] = ranges;

#define ADD_SEGMENT(memory, bytes, place, length)                                                  \
	(segments[number++] = (struct kexec_segment){ (void *)(memory), bytes, (void *)(uintptr_t)(place), \
						      ((length) + page - 1) / page * page })
	ADD_SEGMENT(code, sizeof(code), ENTRY, sizeof(code));
	ADD_SEGMENT(boot, sizeof(boot), BOOT_PARAMETERS, sizeof(boot));
	ADD_SEGMENT(words[2], strlen(words[2]) + 1, ARGUMENTS, strlen(words[2]) + 1);
	for (int at = 0; at < head->e_phnum; at++)
		if (parts[at].p_type == PT_LOAD)
			ADD_SEGMENT(kernel + parts[at].p_offset, parts[at].p_filesz, parts[at].p_paddr,
				    parts[at].p_memsz);
	ADD_SEGMENT(initrd, initrd_size, INITRD, initrd_size);
	if (syscall(SYS_kexec_load, ENTRY, number, segments, KEXEC_ARCH_X86_64))
		fail("kexec_load");
}

static void start_kernel(void)
{
	syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_KEXEC, NULL);
	fail("reboot");
}

int main(int count, char **words)
{
	if (count >= 4 && !strcmp(words[1], "xdp"))
		xdp(count - 2, words + 2);
	else if (count >= 4 && !strcmp(words[1], "member"))
		member(count - 2, words + 2);
	else if (count == 3 && !strcmp(words[1], "answer"))
		receive(words[2], NULL);
	else if (count == 4 && !strcmp(words[1], "hear"))
		receive(words[2], words[3]);
	else if (count == 5 && !strcmp(words[1], "ask"))
		return ask(words + 2), 0;
	else if (count == 5 && !strcmp(words[1], "load"))
		return load_kernel(words + 2), 0;
	else if (count == 2 && !strcmp(words[1], "kexec"))
		start_kernel();
	fputs("inside: see its first comment\n", stderr);
	return 2;
}
