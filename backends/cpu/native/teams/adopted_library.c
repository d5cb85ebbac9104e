/* Turns the OpenMP calls of one loaded library to our own teams, and nobody else's: the loader wrote the
 * addresses of libgomp's functions into a table of that library, and they are written over.
 *
 * Sources: elf(5), dl_iterate_phdr(3) and dlinfo(3); the loader has made addresses in the dynamic section
 * absolute, as glibc does on processors that it is written for here.
 */
#define _GNU_SOURCE
#include "adopted_library.h"

#include "openmp_calls.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
static int is_address(uint64_t kind)
{
    return kind == R_X86_64_JUMP_SLOT || kind == R_X86_64_GLOB_DAT;
}
#elif defined(__aarch64__)
static int is_address(uint64_t kind)
{
    return kind == R_AARCH64_JUMP_SLOT || kind == R_AARCH64_GLOB_DAT;
}
#else
static int is_address(uint64_t kind)
{
    (void)kind;
    return 0;
}
#endif

struct relocations {
    const ElfW(Rela) *first;
    size_t count;
};

struct library {
    uintptr_t base;
    const ElfW(Sym) *symbols;
    const char *names;
    struct relocations lists[2]; /* of data, and of calls */
    uintptr_t sealed, sealed_end; /* pages that the loader has made read-only */
};

static void read_dynamic_section(struct library *library, const struct link_map *map)
{
    library->base = map->l_addr;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        const uintptr_t value = entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB)
            library->symbols = (const ElfW(Sym) *)value;
        else if (entry->d_tag == DT_STRTAB)
            library->names = (const char *)value;
        else if (entry->d_tag == DT_RELA)
            library->lists[0].first = (const ElfW(Rela) *)value;
        else if (entry->d_tag == DT_RELASZ)
            library->lists[0].count = value / sizeof(ElfW(Rela));
        else if (entry->d_tag == DT_JMPREL)
            library->lists[1].first = (const ElfW(Rela) *)value;
        else if (entry->d_tag == DT_PLTRELSZ)
            library->lists[1].count = value / sizeof(ElfW(Rela));
    }
}

static uintptr_t page_of(uintptr_t address)
{
    return address & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
}

/* The loader leaves the page alone that is sealed in part: where pages are larger than the linker knew. */
static int find_sealed_pages(struct dl_phdr_info *info, size_t size, void *found)
{
    struct library *library = found;
    (void)size;
    if (info->dlpi_addr != library->base)
        return 0;
    for (int index = 0; index < info->dlpi_phnum; index++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[index];
        if (header->p_type == PT_GNU_RELRO) {
            library->sealed = page_of(library->base + header->p_vaddr);
            library->sealed_end = page_of(library->base + header->p_vaddr + header->p_memsz);
        }
    }
    return 1;
}

static int write_address(const struct library *library, uintptr_t *place, uintptr_t address)
{
    const uintptr_t first = page_of((uintptr_t)place);
    const size_t length = (uintptr_t)(place + 1) - first;
    const int is_sealed = (uintptr_t)place >= library->sealed
                          && (uintptr_t)place < library->sealed_end;

    if (is_sealed && mprotect((void *)first, length, PROT_READ | PROT_WRITE) != 0)
        return errno;
    __atomic_store_n(place, address, __ATOMIC_RELEASE);
    if (is_sealed && mprotect((void *)first, length, PROT_READ) != 0)
        return errno;
    return 0;
}

/* Visit each call of OpenMP. Return the name of the first that we have none for; NULL if we have all. */
static const char *turn_calls(const struct library *library, int is_writing, int *written, int *status)
{
    for (int list = 0; list < 2; list++)
        for (size_t index = 0; index < library->lists[list].count; index++) {
            const ElfW(Rela) *entry = &library->lists[list].first[index];
            if (!is_address(ELF64_R_TYPE(entry->r_info)))
                continue;
            const char *name = library->names
                               + library->symbols[ELF64_R_SYM(entry->r_info)].st_name;
            if (!is_openmp_call(name))
                continue;
            const uintptr_t address = (uintptr_t)openmp_call(name);
            if (address == 0)
                return name;
            if (is_writing && *status == 0)
                *status = write_address(library, (uintptr_t *)(library->base + entry->r_offset),
                                        address);
            *written += 1;
        }
    return NULL;
}

/* adopt_library(handle): None, or the name of a call that our teams do not know; then nothing is changed.
 * OSError where the system does not let it be changed. */
PyObject *adopt_library(PyObject *module, PyObject *args)
{
    unsigned long long handle;
    struct link_map *map = NULL;
    struct library library = {0};
    int count = 0, status = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "K", &handle))
        return NULL;
    if (dlinfo((void *)(uintptr_t)handle, RTLD_DI_LINKMAP, &map) != 0) {
        PyErr_SetString(PyExc_OSError, dlerror());
        return NULL;
    }
    read_dynamic_section(&library, map);
    dl_iterate_phdr(find_sealed_pages, &library);
    const char *unknown = turn_calls(&library, 0, &count, &status);
    if (unknown != NULL)
        return PyUnicode_FromString(unknown);
    if (count == 0)
        return PyUnicode_FromString("no call of OpenMP");
    turn_calls(&library, 1, &count, &status);
    if (status != 0) {
        errno = status;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}
