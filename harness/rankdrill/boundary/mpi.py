"""x"""
def install_mpi(boundary, MPI):
    pass
