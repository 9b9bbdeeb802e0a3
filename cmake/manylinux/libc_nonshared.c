/* What programs expect of the C library, and the shared objects of glibc 2.28 do not have. Linked in. */
extern int __cxa_atexit(void (*function)(void*), void* argument, void* library);
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void* library);
extern void* __dso_handle;

__attribute__((visibility("hidden"))) int atexit(void (*function)(void)) {
  return __cxa_atexit((void (*)(void*))function, 0, &__dso_handle);
}

__attribute__((visibility("hidden"))) int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
  return __register_atfork(prepare, parent, child, &__dso_handle);
}

/* GCC's C++ runtime leaves out atomic instructions while this says that a process has one thread; glibc 2.32 keeps it. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
